"""Commands that a message tells people to run, quoted for a shell."""

from __future__ import annotations

import shlex


def command(*words: object) -> str:
    """A command of knnmt in back quotes, its words quoted if a shell needs it."""
    return f"`knnmt {shlex.join(map(str, words))}`"
