"""Adaptive retrieval: a trained gate beside a choice of steps by chance at the same rate of searches.

    python benchmarks/adaptive.py [--pairs 15000] [--lines 400] [--domains …] [--device cuda] [--hypotheses FILE]
    python benchmarks/adaptive.py --score FILE

For each domain a store of `--pairs` training pairs is built, as for benchmarks/quality.py, with settings estimated from
the store alone; `--stores` keeps it, and an index that was made there is used. Half of the development text (by a hash
of the sources) trains a gate, the first `--lines` of the other half are translated, beam 5: with every step searched,
with those above each threshold, and with as many others, each with the gate's λ and with the store's own. Scores are
sacrebleu's; where that is not installed, write the translations to a file and score them elsewhere. Text comes from
KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harm import DOMAINS, build, read
from knnmt.config import BatchingConfig
from knnmt.corpus.splitting import divide, halves
from knnmt.datastore.overlap import overlap
from knnmt.decoding.beam import beam_search
from knnmt.engine.batching import batches_by_length
from knnmt.fitting.gate_training import GateConfig, gate_text, judge_thresholds, train_gate
from knnmt.retrieval.gate import RandomGate, ThresholdGate, TrainedGate
from knnmt.retrieval.ngrams import NgramCounts
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.retrieval.statistics import Statistics
from knnmt.retrieval.step import Gate
from knnmt.translator.translator import Translator
from quality import reported, run

ALPHAS = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class Domain:
    """A store with its settings, and the lines that are translated with it."""

    translator: Translator
    fixed: Retrieval
    fading: Retrieval
    lines: Sequence[str]
    batch_size: int

    def translate(self, retrieval: Retrieval | None) -> dict[str, Any]:
        """Texts, searches saved and speed; None for the model alone."""
        engine, decoding = self.translator.engine, self.translator.decoding(beam=5, max_tokens=200)
        sources = engine.tokenizer.encode_sources(list(self.lines))
        texts = [""] * len(sources)
        statistics, tokens, started = Statistics(), 0, time.perf_counter()
        for batch in batches_by_length(list(map(len, sources)), BatchingConfig(self.batch_size)):
            memory = None if retrieval is None else BatchRetrieval([retrieval] * len(batch), statistics)
            for place, (best,) in zip(
                batch, beam_search(engine, [sources[i] for i in batch], decoding, memory), strict=True
            ):
                texts[place] = engine.tokenizer.decode(best.tokens)
                tokens += len(best.tokens)
        speed = tokens / (time.perf_counter() - started)
        return {"texts": texts, "saved": statistics.saved() if retrieval else 1.0, "tokens_per_second": speed}

    def gated(self, gate: Gate) -> dict[str, Any]:
        """With the store's own settings and a gate."""
        return self.translate(Retrieval(self.fading.store, self.fading.config, gate))


def trained(translator: Translator, domain: str, retrieval: Retrieval, config: GateConfig) -> TrainedGate:
    """A gate, from the half of the development text that is not translated; pairs that the store holds left out."""
    opened = retrieval.store
    pairs = overlap(opened.store, halves(read(domain, "dev"))[0]).new
    counts = NgramCounts(opened.store, translator.engine.device) if "ngrams" in config.features else None
    started = time.perf_counter()
    texts = [
        gate_text(translator.engine, opened, some, retrieval.config, counts, config.features)
        for some in divide(pairs, 0.8)
    ]
    found = train_gate(opened, texts[0], texts[1], retrieval.config, counts, config)
    losses = ", ".join(f"{name} {loss:.4f}" for name, loss in found.gate.record.losses.items())
    print(f"{domain}: trained in {time.perf_counter() - started:.0f} s; validation: {losses}", flush=True)
    for each in judge_thresholds(found, texts[1], ALPHAS):
        print(f"  λ > {each.threshold}: {each.searched:.1%}, {each.gate:.4f}, by chance {each.chance:.4f}", flush=True)
    found.gate.network.to(translator.engine.device)
    return found.gate


def systems(run: Domain, gate: TrainedGate) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, result) of every system, one after the other."""
    yield "base", run.translate(None)
    yield "kNN-MT, fixed λ", run.translate(run.fixed)
    yield "kNN-MT, fading λ", run.translate(run.fading)
    yield "gate, all steps", run.gated(ThresholdGate(gate, 0.0))
    for alpha in ALPHAS:
        for own, of_lambda in ((False, "predicted λ"), (True, "fading λ")):
            result = run.gated(ThresholdGate(gate, alpha, own))
            yield f"λ > {alpha}, {of_lambda}", result
            rate = 1 - result["saved"]
            yield f"as many by chance, λ > {alpha}, {of_lambda}", run.gated(RandomGate(rate, 0, None if own else gate))


def translate_all(arguments: argparse.Namespace, stores: Path) -> dict[str, Any]:
    translator = Translator(device=arguments.device, dtype="float32")
    config = GateConfig(tuple(arguments.features), l1=arguments.l1)
    found: dict[str, Any] = {}
    for domain in arguments.domains:
        place = stores / domain / "full"
        if not place.exists():
            build(place, domain, arguments.pairs, translator)
        fixed, fading = (
            translator.memories.retrieval(place, RetrievalSettings(fading=fades)) for fades in (False, True)
        )
        gate = trained(translator, domain, fading, config)
        lines = [pair.source for pair in reported(domain, tuned=True)[: arguments.lines]]
        for name, result in systems(Domain(translator, fixed, fading, lines, arguments.batch_size), gate):
            speed = result["tokens_per_second"]
            print(f"{domain} {name}: {result['saved']:.1%} saved, {speed:.0f} tokens/s", flush=True)
            found[f"{domain}|{name}"] = result
            if arguments.hypotheses:
                arguments.hypotheses.write_text(json.dumps(found), encoding="utf-8")
        translator.memories.close(place)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=15_000)
    parser.add_argument("--lines", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--features", nargs="*", default=GateConfig().features)
    parser.add_argument("--l1", type=float, default=GateConfig().l1)
    parser.add_argument("--domains", nargs="*", default=DOMAINS, choices=DOMAINS)
    run(parser, translate_all, lambda _, domain: reported(domain, tuned=True))


if __name__ == "__main__":
    main()
