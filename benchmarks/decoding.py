"""Decoding speed of this engine in float32 and int8 beside `transformers` and CTranslate2: same model, text, threads.

    python benchmarks/decoding.py [--text FILE ...] [--sentences 64] [--rounds 5] [--threads 2] [--cpu-time]
    python benchmarks/decoding.py --made-up marian-78m fsmt-270m [--target-tokens 32] ...

Each system runs in its own process, because the thread pools of two libraries in one process disturb each other. Only
one system works at a time, and they take turns within every round, so that a slow moment of the machine affects all.
The text is sorted by length and batched in the same way for all. Tokens are those of the best hypotheses, including the
end of sentence. Default text: the German side of the development sets under KNNMT_DATA (default ../shared).

With --made-up, models of well-known shapes with random weights (`made_up.py`) replace the shipped one. Every hypothesis
then has the same number of tokens, so that all systems do the same work. With --cpu-time, the script measures CPU
seconds, which are more reliable on a shared machine. Use this with one thread only, because waiting threads count as
working. With --busy 2, two other processes compute during the whole comparison, as on a machine with other services.
`--systems knnmt-int8:avx512amx knnmt-int8:avx512vnni --no-float32` compares two builds of compiled code.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import made_up
from knnmt.corpus.lines import read_lines
from knnmt.engine.precision import cpu_name
from knnmt.engine.shipped import MODELS_DIRECTORY
from knnmt.engine.tokenizer import load_tokenizer
from knnmt.native import fitting_builds
from knnmt_lab.scripts import argument_parser, development_sources, print_header, print_row

MODEL = MODELS_DIRECTORY / "de-en"
SYSTEMS = ["knnmt", "knnmt-int8", "transformers", "ctranslate2", "ctranslate2-int8"]
BUILDS = ["knnmt-int8:avx512amx", "knnmt-int8:avx512vnni"]  # one of the builds, whatever is the best on this CPU
Decode = Callable[[list[list[int]], int], int]


def text_of(arguments: argparse.Namespace) -> list[str]:
    if not arguments.text:
        return development_sources(arguments.sentences)
    lines = (line for path in arguments.text for line in read_lines(path) if line.strip())
    return list(islice(lines, arguments.sentences))


# One system, in a process of its own ---------------------------------------------------------------------------------


def knnmt_system(model: Path, dtype: str, tokens: int) -> Decode:
    from dataclasses import replace

    from knnmt.decoding.search import search
    from knnmt.engine.loading import load_engine

    engine = load_engine(model, device="cpu", dtype=dtype)
    usual = engine.generation
    if tokens:
        usual = replace(usual, min_tokens=tokens, max_tokens=tokens)

    def decode(batch: list[list[int]], beam: int) -> int:
        config = replace(usual, beam=beam)
        found = search(engine, batch, config)
        return sum(len(best[0].tokens) for best in found)

    return decode


def transformers_system(directory: Path, tokens: int) -> Decode:
    import torch
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(directory, dtype=torch.float32, trust_remote_code=False).eval()
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    fixed = {"min_new_tokens": tokens, "max_new_tokens": tokens} if tokens else {}

    def decode(batch: list[list[int]], beam: int) -> int:
        longest = max(map(len, batch))
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in batch])
        mask = (torch.arange(longest) < torch.tensor([len(row) for row in batch])[:, None]).long()
        with torch.inference_mode():
            found = model.generate(input_ids=ids, attention_mask=mask, num_beams=beam, **fixed)
        return sum(row[1:].index(end) + 1 if end in row[1:] else len(row) - 1 for row in found.tolist())

    return decode


def ctranslate2_system(model: Path, directory: str, compute_type: str, threads: int, tokens: int) -> Decode:
    import ctranslate2

    translator = ctranslate2.Translator(directory, compute_type=compute_type, inter_threads=1, intra_threads=threads)
    tokenizer = load_tokenizer(model)
    fixed = {"min_decoding_length": tokens, "max_decoding_length": tokens} if tokens else {"max_decoding_length": 511}

    def decode(batch: list[list[int]], beam: int) -> int:
        pieces = [[tokenizer.piece(token) for token in row] for row in batch]
        found = translator.translate_batch(pieces, beam_size=beam, **fixed)
        return sum(tokens or len(each.hypotheses[0]) + 1 for each in found)

    return decode


def serve(system: str, threads: int, model: Path, ct2: str, fixed: int) -> None:
    """Answer each request (batches and beam, a JSON line) with tokens and seconds."""
    import torch

    torch.set_num_threads(threads)
    dtype = "int8" if system.endswith("int8") else "float32"
    if system.startswith("knnmt"):
        decode = knnmt_system(model, dtype, fixed)
    elif system == "transformers":
        decode = transformers_system(model, fixed)
    else:
        decode = ctranslate2_system(model, ct2, dtype, threads, fixed)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        from knnmt import stage_times

        with stage_times() as timings:
            started, worked = time.perf_counter(), time.process_time()
            tokens = sum(decode(batch, request["beam"]) for batch in request["batches"])
            seconds = {"wall": time.perf_counter() - started, "cpu": time.process_time() - worked}
        print(json.dumps({"tokens": tokens, **seconds, "stages": timings.seconds}), flush=True)


class System:
    """A system's process, with a pipe for requests."""

    def __init__(self, name: str, threads: int, model: Path, ct2: Path, tokens: int) -> None:
        kind, _, build = name.partition(":")
        command = [sys.executable, __file__, "--serve", kind, "--threads", str(threads)]
        command += ["--model", str(model), "--ct2", str(ct2), "--target-tokens", str(tokens)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TRANSFORMERS_VERBOSITY": "error"}
        if build:
            environment["KNNMT_NATIVE"] = build
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._answer()

    def _answer(self) -> dict[str, object]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"a system stopped: {' '.join(map(str, self.process.args))}")  # type: ignore[arg-type]
        answer: dict[str, object] = json.loads(line)
        return answer

    def run(self, batches: list[list[list[int]]], beam: int) -> dict[str, object]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"batches": batches, "beam": beam}) + "\n")
        self.process.stdin.flush()
        return self._answer()


# The comparison ------------------------------------------------------------------------------------------------------


def convert(place: Path) -> Path:
    converter = (
        shutil.which("ct2-transformers-converter", path=str(Path(sys.executable).parent))
        or "ct2-transformers-converter"
    )
    subprocess.run([converter, "--model", MODEL, "--output_dir", place], check=True, capture_output=True)
    return place


def batches_of(sources: list[list[int]], size: int, count: int) -> list[list[list[int]]]:
    """Batches with sentences of all lengths for every batch size; small sizes get fewer, to keep the run short."""
    step = max(1, len(sources) // count)
    chosen = sorted(sources[::step], key=len, reverse=True)
    return [chosen[i : i + size] for i in range(0, len(chosen), size)]


def compare(systems: dict[str, System], sources: list[list[int]], arguments: argparse.Namespace) -> None:
    names = list(systems)
    ratios = [(ours, theirs) for theirs in names for ours in names if _compared(ours, theirs)]
    head = [*(f"{name} tokens/s" for name in names), *(f"{ours} / {theirs}" for ours, theirs in ratios)]
    print_header("batch", "beam", *head)
    profiles = []
    for size in arguments.batch_sizes:
        batches = batches_of(sources, size, len(sources) if size > 1 else len(sources) // 4)
        for beam in arguments.beams:
            speeds: dict[str, list[float]] = {name: [] for name in names}
            stages: dict[str, dict[str, float]] = {}
            for turn in range(arguments.rounds + 1):
                for name, system in systems.items():
                    answer = system.run(batches, beam)
                    if turn:  # the first round is a warm-up
                        seconds = answer["cpu" if arguments.cpu_time else "wall"]
                        speeds[name].append(answer["tokens"] / seconds)  # type: ignore[operator]
                        stages[name] = answer["stages"]  # type: ignore[assignment]
            medians = {name: statistics.median(values) for name, values in speeds.items()}
            cells = [f"{medians[name]:.0f} ({min(speeds[name]):.0f} to {max(speeds[name]):.0f})" for name in names]
            cells += [f"{medians[ours] / medians[theirs]:.2f}" for ours, theirs in ratios]
            print_row(size, beam, *cells)
            profiles += [f"batch {size}, beam {beam}, {name}: {_shares(stages[name])}" for name in names if _ours(name)]
    print("\nWhere knnmt's time goes (last round):\n" + "\n".join(profiles))


def _ours(name: str) -> bool:
    return name.startswith("knnmt")


def _compared(ours: str, theirs: str) -> bool:
    """float32 is compared with all others, int8 with int8, the best build with the next."""
    if _ours(theirs):
        return [ours, theirs] == BUILDS
    return _ours(ours) and (ours == "knnmt" or theirs.endswith("int8"))


def _shares(stages: dict[str, float]) -> str:
    total = sum(stages.values())
    longest_first = sorted(stages.items(), key=lambda item: -item[1])
    return ", ".join(f"{stage} {100 * seconds / total:.0f} %" for stage, seconds in longest_first)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--text", type=Path, nargs="*", help="German text, one sentence a line")
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--batch-sizes", type=int, nargs="*", default=[1, 8, 16])
    parser.add_argument("--beams", type=int, nargs="*", default=[5, 1])
    parser.add_argument("--systems", nargs="*", default=SYSTEMS, choices=[*SYSTEMS, *BUILDS])
    parser.add_argument("--no-float32", action="store_true", help="do not measure knnmt in float32 as well")
    parser.add_argument("--made-up", nargs="*", default=[], choices=[*made_up.SHAPES], help="random weights")
    parser.add_argument("--target-tokens", type=int, default=32, help="of every hypothesis of made-up models")
    parser.add_argument("--cpu-time", action="store_true", help="tokens a second of CPU time; for one thread")
    parser.add_argument("--busy", type=int, default=0, help="other processes that compute at the same time")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ct2", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.threads, arguments.model, arguments.ct2, arguments.target_tokens)
        return
    fitting = fitting_builds()
    for build in (name.partition(":")[2] for name in arguments.systems):
        if build and build not in fitting:
            parser.error(f"this CPU does not run the build {build}; it runs {', '.join(fitting)}")
    beside = f", beside {arguments.busy} busy processes" if arguments.busy else ""
    print(f"{cpu_name()}, {arguments.threads} threads, {arguments.rounds} rounds{beside}\n")
    for name in arguments.made_up or ["de-en"]:
        with tempfile.TemporaryDirectory() as scratch:
            compare_on(name, Path(scratch), arguments)


def compare_on(model: str, scratch: Path, arguments: argparse.Namespace) -> None:
    """All systems on the shipped or a made-up model; another process makes the latter, because that takes memory."""
    checkpoint, tokens, ct2 = MODEL, 0, scratch / "ct2"
    names = [*([] if arguments.no_float32 else ["knnmt"]), *(name for name in arguments.systems if name != "knnmt")]
    if model in made_up.SHAPES:
        checkpoint, tokens = scratch / "checkpoint", arguments.target_tokens
        of_process = f"import made_up, pathlib; made_up.write({model!r}, pathlib.Path({str(scratch)!r}))"
        subprocess.run([sys.executable, "-c", of_process], check=True, cwd=Path(__file__).parent, capture_output=True)
        sources = made_up.sources(model, arguments.sentences)
    else:
        sources = [ids for ids in load_tokenizer(MODEL).encode_sources(text_of(arguments)) if len(ids) <= 512]
        if any(name.startswith("ctranslate2") for name in names):
            convert(ct2)
    print(f"{model}: {len(sources)} sentences, {sum(map(len, sources))} source tokens\n")
    systems = {name: System(name, arguments.threads, checkpoint, ct2, tokens) for name in names}
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        compare(systems, sources, arguments)
    finally:
        for system in systems.values():
            system.process.kill()
            system.process.wait()
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
