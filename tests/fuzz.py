"""Fuzzer of crafted stores, memories and documents: `python tests/fuzz.py --minutes 2 --seed 0`, or `make fuzz`.

Whatever a file holds, reading it succeeds or ends in an error of knnmt's own. Another exception, a crash, more than 20
seconds or 2 GiB is a finding: it is printed, its input is kept in `.fuzz/`, and the status is 1. `--replay .fuzz/0-17`
tries a kept input again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ["OMP_NUM_THREADS"] = "1"  # before PyTorch: children are forked, which threads do not outlive

import torch

from fuzzing.running import fuzz, replay, report
from fuzzing.samples import make_stores
from knnmt.translator.translator import Translator
from support.checkpoints import write_checkpoint


def main() -> int:
    """Run, and return the exit status."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=2)
    options.add_argument("--seed", type=int, help="the same seed makes the same inputs [default: the time]")
    options.add_argument("--only", choices=("memories",), help="leave out the stores, which need transformers")
    options.add_argument("--findings", type=Path, default=Path(".fuzz"), help="where inputs are kept [default: .fuzz]")
    options.add_argument("--replay", type=Path, help="a kept input to try again, instead of new ones")
    given = options.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as place:
        translator, stores = None, []
        if given.only is None:
            write_checkpoint(Path(place, "model"))
            translator = Translator(Path(place, "model"), device="cpu")
            stores = make_stores(Path(place), translator.engine)
        if given.replay is not None:
            found = replay(given.replay, translator)
            if found is not None:
                report(found, str(given.replay))
            return int(found is not None)
        seed = int(time.time()) if given.seed is None else given.seed
        kinds: Counter[str] = Counter()
        cases = 0
        for name, found in fuzz(seed, 60 * given.minutes, stores, translator, given.findings):
            cases += 1
            if found is not None:
                if found.what not in kinds:
                    report(found, name)
                kinds[found.what] += 1
    sys.stdout.write(f"seed {seed}: {cases:,} cases, {kinds.total():,} findings of {len(kinds):,} kinds\n")
    for what, count in kinds.most_common():
        sys.stdout.write(f"{count:6,}  {what}\n")
    return int(bool(kinds))


if __name__ == "__main__":
    sys.exit(main())
