"""Beams and drafts: how often drafts foresee a beam's next survivors, and BLEU against speed for every beam.

    python benchmarks/drafting_beams.py foreseen STORE=DOMAIN [--beams 2 3 5] [--lines 40] [--threads 1]
    python benchmarks/drafting_beams.py measure STORE=DOMAIN --out STEM [--beams 1 2 3 5] [--lines 200] [--batch 8]
        [--runs 2] [--device cuda] [--segments 64] [--threads 1]
    python benchmarks/drafting_beams.py draw STORE=DOMAIN --out STEM

foreseen: a beam could leave out a pass if all of its survivors were among the tokens that were drafted for their
hypotheses and computed in the previous pass. For several numbers of drafted tokens per hypothesis, this counts how
often that happens, and computes the gain: the tokens per pass times the cost of a pass without drafts, divided by the
cost of one with drafts, measured in the same run.

measure: tokens per second of the model alone, of search in the whole store and by segment, and by segment with drafts,
written to STEM.json with the translations. draw: shows these against BLEU as a table, STEM.png and STEM.svg; only this
step needs matplotlib and sacrebleu, so another machine can do it. Time is CPU time with one CPU thread, otherwise
wall-clock time; the fastest run of each system counts. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from drafting import decode
from knnmt import spread
from knnmt.decoding import beam as beam_module
from knnmt.decoding.batch import Batch
from knnmt.engine.precision import cpu_name
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.translator.translator import Translator
from knnmt_lab.figures import new_figure, save_figure
from knnmt_lab.scripts import argument_parser, print_header, print_row, read_domain

DRAFTED = (1, 2, 4, 8)  # tokens for each hypothesis


class Watched(Batch[object]):  # type: ignore[type-var]
    """A batch that counts steps whose survivors were among the drafted tokens of their hypotheses, for each number.

    drafts: for each row, the tokens that follow the entries of its last token, nearest first, each once
    """

    steps = 0
    foreseen = dict.fromkeys(DRAFTED, 0)
    drafts: list[list[list[int]]] | None = None

    def follow(self, parents: Tensor, tokens: Tensor, scores: Tensor) -> None:
        if self.drafts is not None:
            for row, drafts in enumerate(self.drafts):
                Watched.steps += 1
                survivors = list(zip(parents[row].tolist(), tokens[row].tolist(), strict=True))
                for most in DRAFTED:
                    Watched.foreseen[most] += all(token in drafts[parent][:most] for parent, token in survivors)
        retrieval = self._retrieval
        assert retrieval is not None
        assert retrieval.steps is not None
        last = retrieval.steps[-1]
        if last is not None:
            entries = retrieval.groups[0].store.index.entries
            width = len(last.neighbours.ids) // len(tokens)
            ids = last.neighbours.ids.view(len(tokens), width, -1)
            own = last.neighbours.tokens.view(ids.shape)
            coming = entries.values_of((ids + 1).clamp(min=0, max=entries.entries - 1)).tolist()
            self.drafts = [
                [
                    list(
                        dict.fromkeys(
                            coming[row][parent][i] for i in range(ids.shape[2]) if own[row, parent, i] == token
                        )
                    )
                    for parent, token in zip(parents[row].tolist(), tokens[row].tolist(), strict=True)
                ]
                for row in range(len(tokens))
            ]
        super().follow(parents, tokens, scores)

    def keep(self, open_: Sequence[int]) -> None:
        before = self.sources
        super().keep(open_)
        if self.drafts is not None and len(self.sources) < len(before):
            places = [before.index(source) for source in self.sources]
            self.drafts = [self.drafts[place] for place in places]


def milliseconds_a_pass(engine: TransformerEngine, rows: int) -> float:
    """Time of decoder and vocabulary with this many rows of one sentence, twelve tokens into it."""
    times = []
    with torch.inference_mode():
        state = engine.start(engine.encode([[*range(50, 80), 0]]))
        state.widen(rows)
        for _ in range(24):
            began = time.process_time()
            engine.log_probabilities(engine.step(state, torch.full((1, rows, 1), 60)))
            times.append(time.process_time() - began)
    return 1000 * statistics.median(times)


def foreseen(translator: Translator, retrieval: Retrieval, sources: list[list[int]], beams: Sequence[int]) -> None:
    engine = translator.engine
    assert isinstance(engine, TransformerEngine)
    vars(beam_module)["Batch"] = Watched
    print_header("beam", "drafted for each hypothesis", "all survivors foreseen", "cost of a pass", "gain")
    for beam in beams:
        config = replace(engine.generation, beam=beam, n_best=1)
        Watched.steps, Watched.foreseen = 0, dict.fromkeys(DRAFTED, 0)
        for source in sources:
            beam_module.beam_search(engine, [source], config, BatchRetrieval([retrieval], record=True))
        alone = milliseconds_a_pass(engine, beam)
        for most, count in Watched.foreseen.items():
            share, cost = count / Watched.steps, milliseconds_a_pass(engine, beam * (1 + most)) / alone
            print_row(beam, most, f"{share:.0%}", f"{cost:.2f}", f"{(1 + share) / cost:.2f}")


def measure(translator: Translator, place: str, domain: str, given: argparse.Namespace) -> None:
    engine = translator.engine
    pairs = spread(read_domain(domain, "dev"), given.lines)
    sources = engine.tokenizer.encode_sources([pair.source for pair in pairs])
    order = sorted(range(len(pairs)), key=lambda number: len(sources[number]))
    batches: list[Sequence[Sequence[int]]] = [
        [sources[number] for number in order[first : first + given.batch]]
        for first in range(0, len(order), given.batch)
    ]
    by_segment = translator.retrieval(datastore=place, segments=given.segments)
    systems: dict[str, tuple[Retrieval | None, bool]] = {
        "the model alone": (None, False),
        f"{given.segments} segments": (by_segment, False),
        f"{given.segments} segments, drafts": (by_segment, True),
        "whole store": (translator.retrieval(datastore=place, search="whole"), False),
    }
    cpu = engine.device.type == "cpu"
    clock = time.process_time if cpu and given.threads == 1 else time.perf_counter
    where = f"{cpu_name()}, {given.threads} threads" if cpu else f"{torch.cuda.get_device_name()}, {engine.computes_in}"
    about = f"{domain}, batch {given.batch}, {where}"
    points = []
    for name, way in systems.items():
        for beam in [1] if way[1] else given.beams:
            config = replace(engine.generation, beam=beam, n_best=1)
            seconds = []
            for _ in range(given.runs):
                began = clock()
                found, _ = decode(translator, batches, config, *way)
                seconds.append(clock() - began)
            speed = sum(len(each.tokens) for each in found) / min(seconds)
            texts = dict(zip(order, (engine.tokenizer.decode(each.tokens) for each in found), strict=True))
            hypotheses = [texts[number] for number in range(len(pairs))]
            points.append({"system": name, "beam": beam, "speed": speed, "hypotheses": hypotheses})
            print(f"{name}, beam {beam}: {speed:,.0f} tokens a second", flush=True)
            given.out.with_suffix(".json").write_text(json.dumps({"about": about, "points": points}), encoding="utf-8")


def draw(domain: str, stem: Path) -> None:
    import sacrebleu

    measured = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    points = measured["points"]
    references = [pair.target for pair in spread(read_domain(domain, "dev"), len(points[0]["hypotheses"]))]
    axes = (figure := new_figure()).subplots()
    print(f"{measured['about']}, {len(references)} lines")
    print_header("system", "beam", "BLEU", "tokens a second")
    for name in dict.fromkeys(each["system"] for each in points):
        mine = [each for each in points if each["system"] == name]
        speeds = [each["speed"] for each in mine]
        scores = [sacrebleu.corpus_bleu(each["hypotheses"], [references]).score for each in mine]
        axes.plot(speeds, scores, "o-", label=name)
        for each, speed, bleu in zip(mine, speeds, scores, strict=True):
            axes.annotate(str(each["beam"]), (speed, bleu), textcoords="offset points", xytext=(4, 4), fontsize=8)
            print_row(name, each["beam"], f"{bleu:.2f}", f"{speed:,.0f}")
    axes.set_xlabel("tokens a second")
    axes.set_ylabel("BLEU")
    axes.set_title(f"{measured['about']}\nnumbers are beams", fontsize=8)
    axes.legend(fontsize=8)
    for path in save_figure(figure, stem):
        print(path)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=["foreseen", "measure", "draw"])
    parser.add_argument("store")
    parser.add_argument("--beams", type=int, nargs="+")
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--segments", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="1 on a CPU unless said; beside a GPU as many as there are")
    parser.add_argument("--out", type=Path, default=Path("beams"))
    given = parser.parse_args()
    place, _, domain = given.store.partition("=")
    if given.what == "draw":
        draw(domain, given.out)
        return
    if given.device == "cpu" and given.threads is None:
        given.threads = 1
    translator = Translator(device=given.device, threads=given.threads)
    print(f"{cpu_name()}, {given.threads} threads, {place}, {given.lines} lines\n")
    if given.what == "measure":
        given.beams = given.beams or [1, 2, 3, 5]
        measure(translator, place, domain, given)
        return
    retrieval = translator.retrieval(datastore=place, segments=given.segments)
    assert retrieval is not None
    texts = [pair.source for pair in spread(read_domain(domain, "dev"), given.lines)]
    foreseen(translator, retrieval, translator.engine.tokenizer.encode_sources(texts), given.beams or [2, 3, 5])


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
