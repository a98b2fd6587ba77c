"""COMET in its own environment, because unbabel-comet pins versions that do not work with ours.

A worker (`comet_worker.py`) runs with that environment's interpreter, and answers over a pipe.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from knnmt import Score
from knnmt.errors import CometError

DEFAULT_MODEL = "Unbabel/wmt22-comet-da"
_WORKER = Path(__file__).with_name("comet_worker.py")


class Comet:
    """A COMET model, loaded in another process until this is closed.

    python: the interpreter of an environment with unbabel-comet
    model: a name that unbabel-comet downloads, or a checkpoint (…/checkpoints/model.ckpt, with hparams.yaml above it)
    """

    def __init__(self, python: str | Path, model: str = DEFAULT_MODEL) -> None:
        self._python, self._model = str(python), model
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`
        # With our PYTHONPATH it would import our packages.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        try:
            self._process = subprocess.Popen(  # noqa: S603  the interpreter that the user names
                [self._python, str(_WORKER), model],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env=environment,
            )
        except OSError as error:
            self._complaints.close()
            raise CometError(
                f"--comet-python {python}: cannot be run: {error.strerror}. {CometError.advice}"
            ) from error
        self._requests = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        try:
            self._version = self._answer()["version"]
        except BaseException:
            self.close()
            raise

    @property
    def signature(self) -> str:
        """Identifies the metric in published scores."""
        return f"model:{self._model}|version:{self._version}"

    def score(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> Score:
        """The mean of the segments' scores."""
        found = self.segment_scores(sources, hypotheses, references)
        return Score(sum(found) / len(found), self.signature)

    def segment_scores(
        self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> list[float]:
        """A score for each segment."""
        segments = [
            {"src": source, "mt": hypothesis, "ref": reference}
            for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
        ]
        with suppress(BrokenPipeError):  # then the process has ended, and its last output tells more
            self._requests.write(json.dumps({"segments": segments}).encode() + b"\n")
            self._requests.flush()
        found: list[float] = self._answer()["scores"]
        if len(found) != len(segments):
            raise CometError(f"COMET gave {len(found)} scores for {len(segments)} segments")
        return found

    def close(self) -> None:
        """End the process."""
        for pipe in (self._requests, self._answers):
            with suppress(BrokenPipeError):
                pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._complaints.close()

    def __enter__(self) -> Comet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            status = self._process.wait()
            raise CometError(
                f"the COMET process of {self._python} ended with status {status} before it answered. Its last output:\n"
                f"{self._last_words()}\nStatus -9 or 137 often means too little memory: use a smaller model."
            )
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise CometError(self._explained(answer["failed"], answer["why"]))
        return answer

    def _explained(self, what: str, why: str) -> str:
        if what == "package":
            return f"--comet-python {self._python}: unbabel-comet cannot be imported there ({why}). {CometError.advice}"
        if what == "model":
            return (
                f"--comet-model {self._model}: cannot be loaded ({why}). Expected a name such as {DEFAULT_MODEL}, "
                "which needs the network the first time (some need `huggingface-cli login`), or the path of a "
                "checkpoint, …/checkpoints/model.ckpt with hparams.yaml a directory above"
            )
        return f"COMET failed while scoring: {why}. Its last output:\n{self._last_words()}"

    def _last_words(self) -> str:
        self._complaints.seek(0)
        return "\n".join(self._complaints.read().decode(errors="replace").splitlines()[-5:])
