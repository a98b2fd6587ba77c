"""Commands that a message tells people to run: as they can be pasted into a shell."""

from __future__ import annotations

import shlex


def command(*words: object) -> str:
    """A command of knnmt in back quotes, its words quoted where a shell would need it."""
    return f"`knnmt {shlex.join(map(str, words))}`"
