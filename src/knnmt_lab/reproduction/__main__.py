"""`python -m knnmt_lab.reproduction` produces results without the packages of the command line, for example on GPU
machines.

It has no options of its own: each field of `ReproductionConfig` is an option, named as in `knnmt reproduce`.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from dataclasses import MISSING, Field, fields
from typing import Any, get_args, get_type_hints

from knnmt import KnnmtError
from knnmt_lab.reproduction.config import ReproductionConfig, names_in, numbers_in
from knnmt_lab.reproduction.producing import produce


def parser() -> argparse.ArgumentParser:
    """An option for each field, by its type."""
    made = argparse.ArgumentParser("python -m knnmt_lab.reproduction", description=main.__doc__)
    types = get_type_hints(ReproductionConfig)
    for field in fields(ReproductionConfig):
        _add(made, field, types[field.name])
    return made


def _add(made: argparse.ArgumentParser, field: Field[Any], of_type: Any) -> None:
    usual: Any = field.default
    spelled = field.name.replace("_language", "_lang").replace("_", "-")
    if of_type is bool:
        option = f"--no-{spelled}" if usual else f"--{spelled}"
        made.add_argument(option, dest=field.name, action="store_false" if usual else "store_true")
    elif of_type in (tuple[str, ...], tuple[int, ...]):
        made.add_argument(f"--{spelled}", dest=field.name, nargs="+", default=[str(each) for each in usual])
    else:
        kind = next((each for each in get_args(of_type) if each is not type(None)), of_type)
        needed = usual is MISSING
        made.add_argument(
            f"--{spelled}", dest=field.name, type=kind, required=needed, default=None if needed else usual
        )


def main(arguments: list[str] | None = None) -> None:
    """Produce what is missing. `knnmt reproduce --report-only` makes the report."""
    given: dict[str, Any] = vars(parser().parse_args(arguments))
    try:
        for name, value in given.items():
            if isinstance(value, list):
                given[name] = (numbers_in if name == "batch_sizes" else names_in)(" ".join(value))
        produce(ReproductionConfig(**given), lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        sys.exit(130)
    except KnnmtError as error:
        sys.exit(f"knnmt: error: {error}")
    except (OSError, MemoryError) as error:
        sys.exit(f"knnmt: error: {str(error) or type(error).__name__}")
    except Exception as error:
        if os.environ.get("KNNMT_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exception(error)
        sys.exit(
            f"knnmt: error: {type(error).__name__}: {error}\nknnmt: this should not have happened. "
            f"Please report it where you got knnmt from, with the command and its output with KNNMT_TRACEBACK=1."
        )


if __name__ == "__main__":
    main()
