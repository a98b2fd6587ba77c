"""Scores with COMET: a script that `comet.py` starts with the interpreter of COMET's own environment.

    PYTHON comet_worker.py MODEL

Every line of standard input is a JSON object with `segments`, each with `src`, `mt` and `ref`; every line of standard
output answers one, `{"scores": [...]}` or `{"failed": what, "why": ...}`. The first line reports the start. It needs
the standard library, unbabel-comet and any Python that runs unbabel-comet, so it uses the grammar of Python 3.8.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from typing import Any


def main(model: str) -> None:
    """Load the model, then answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the output of COMET and its libraries is no answer

    def answer(**content: Any) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    def failure(what: str, error: Exception) -> None:
        answer(failed=what, why=f"{type(error).__name__}: {error}")

    del sys.path[0]  # this directory also has a module called comet
    try:
        import torch
        from comet import download_model, load_from_checkpoint

        version = metadata.version("unbabel-comet")
    except Exception as error:
        return failure("package", error)
    try:
        metric = load_from_checkpoint(model if os.path.exists(model) else download_model(model))  # noqa: PTH110
    except Exception as error:
        return failure("model", error)
    answer(version=version)
    for line in sys.stdin.buffer:
        try:
            found = metric.predict(
                json.loads(line)["segments"], gpus=int(torch.cuda.is_available()), num_workers=0, progress_bar=False
            )
            answer(scores=[float(score) for score in found.scores])
        except Exception as error:
            failure("scoring", error)
    return None


if __name__ == "__main__":
    main(sys.argv[1])
