"""`knnmt serve` in a process of its own, for checks of other people's programs (`make test-dialects`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack

KNNMT = [os.environ.get("KNNMT_PYTHON", sys.executable), "-m", "knnmt"]


class ServedProcess:
    """A running service on any port that is free."""

    def __init__(self, stack: ExitStack, *options: str) -> None:
        command = [*KNNMT, "serve", "--port", "0", *options]
        self._process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        stack.callback(self._process.terminate)
        assert self._process.stderr is not None
        said = ""
        for line in self._process.stderr:
            said += line
            if address := re.search(r"serving on (http://\S+);", line):
                self.address = address[1]
                return
        raise AssertionError(f"the service did not start: {said}")


def key_for(keys: str, role: str) -> str:
    """A new key in a file of keys."""
    command = [*KNNMT, "serve-key", keys, f"tool-{role}", "--role", role]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    key = re.search(r"knnmt_\S+", made.stdout + made.stderr)
    assert key is not None, made
    return key[0]
