"""How a command ends: with an exit status, and with one line instead of a traceback if it failed."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress

from knnmt.cli.streams import OutputLost, flush_output
from knnmt.corpus.visible import visible
from knnmt.errors import KnnmtError
from knnmt.extensions import module_that_failed

TRACEBACK = "KNNMT_TRACEBACK"  # in the environment, so that processes that a command starts inherit it
_UNFORESEEN = (
    "knnmt: this should not have happened. Please report it where you got knnmt from, with the command and what "
    "`knnmt --traceback COMMAND...` prints."
)


def run(command: Callable[[], object]) -> int:
    """Run a command and return its exit status."""
    status = _status_of(command)
    if status == 0:
        return _status_of(flush_output)
    with suppress(OutputLost):  # the first error has already been printed
        flush_output()
    return status


def _status_of(action: Callable[[], object]) -> int:
    try:
        action()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        return 130
    except OutputLost as lost:
        if lost.reader_left:
            return 141  # as if the signal had ended it: the reader is gone, which is not an error
        return _tell(lost, str(lost))
    except KnnmtError as error:
        return _tell(error, str(error).replace("\n", "\n  "))
    except OSError as error:
        return _tell(error, visible(str(error)))
    except MemoryError as error:
        return _tell(error, "out of memory: the machine has no more, or the process has reached its limit")
    except Exception as error:
        own = module_that_failed(error)
        whose = (
            _UNFORESEEN
            if own is None
            else (f"knnmt: the error is in {own}. `knnmt --traceback COMMAND...` shows where.")
        )
        return _tell(error, f"{type(error).__name__}: {visible(str(error))}", whose)
    return 0


def _tell(error: Exception, *lines: str) -> int:
    if os.environ.get(TRACEBACK, "0") not in ("", "0"):
        traceback.print_exception(error)
    print("knnmt: error: " + "\n".join(lines), file=sys.stderr)
    return 1
