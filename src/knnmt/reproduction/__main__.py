"""`python -m knnmt.reproduction`: producing where the packages of the command line are missing, as on GPU machines."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from knnmt.errors import KnnmtError
from knnmt.reproduction.config import ReproductionConfig, names_in, numbers_in
from knnmt.reproduction.producing import produce


def main(arguments: list[str] | None = None) -> None:
    """Produce what is left to produce; reporting is for `knnmt reproduce --report-only`."""
    usual: dict[str, Any] = {field.name: field.default for field in fields(ReproductionConfig)}
    parser = argparse.ArgumentParser("python -m knnmt.reproduction", description=main.__doc__)
    for name in ("data", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--stores", type=Path)
    for name in ("domains", "blocks", "systems", "without", "batch_sizes"):
        parser.add_argument(f"--{name.replace('_', '-')}", nargs="+", default=list(map(str, usual[name])))
    for name in ("train_pairs", "sentences", "speed_sentences", "rounds", "threads"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=usual[name])
    for name in ("model", "device"):
        parser.add_argument(f"--{name}", default=usual[name])
    for side in ("source", "target"):
        parser.add_argument(f"--{side}-lang", dest=f"{side}_language")
    for name in ("brief", "exact"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("quality", "speed"):
        parser.add_argument(f"--no-{name}", dest=name, action="store_false")
    parser.add_argument("--minutes", type=float)
    given: dict[str, Any] = vars(parser.parse_args(arguments))
    try:
        for name in ("domains", "blocks", "systems", "without"):
            given[name] = names_in(" ".join(given[name]))
        given["batch_sizes"] = numbers_in(" ".join(given["batch_sizes"]))
        produce(ReproductionConfig(**given), lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        sys.exit(130)
    except KnnmtError as error:
        sys.exit(f"knnmt: error: {error}")


if __name__ == "__main__":
    main()
