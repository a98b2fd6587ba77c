"""The cost of a store inside `generate` of `transformers`, beside our own decoding: CPU time of one thread.

    python benchmarks/transformers_door.py STORE TEXT [LINES] [ROUNDS]

TEXT has a source on each line, or before its first tab.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from knnmt import KNNLogitsProcessor, Translator
from knnmt.engine.shipped import MODELS_DIRECTORY

BATCH, BEAM = 8, 5


def main(store: str, text: str, count: int = 48, rounds: int = 2) -> None:
    torch.set_num_threads(1)
    with Path(text).open(encoding="utf-8") as lines:
        sources = sorted((line.rstrip("\n").split("\t")[0] for line in islice(lines, count)), key=len)
    model = AutoModelForSeq2SeqLM.from_pretrained(
        MODELS_DIRECTORY / "de-en", dtype=torch.float32, trust_remote_code=False
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(MODELS_DIRECTORY / "de-en", trust_remote_code=False)
    translator = Translator(device="cpu")

    def generate(processors: list[KNNLogitsProcessor]) -> list[str]:
        found: list[str] = []
        for i in range(0, len(sources), BATCH):
            batch = tokenizer(sources[i : i + BATCH], return_tensors="pt", padding=True, return_token_type_ids=False)
            tokens = model.generate(**batch, num_beams=BEAM, logits_processor=processors)
            found += tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return found

    def translate(datastore: str | None) -> list[str]:
        found = translator.translate(sources, beam=BEAM, batch_size=BATCH, datastore=datastore)
        return [each.text for each in found]

    with KNNLogitsProcessor(model, store) as knn:
        systems: dict[str, Callable[[], list[str]]] = {
            "generate": lambda: generate([]),
            "generate with the store": lambda: generate([knn]),
            "knnmt": lambda: translate(None),
            "knnmt with the store": lambda: translate(store),
        }
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        texts: dict[str, list[str]] = {}
        for _ in range(rounds):
            for name, run in systems.items():
                started = time.process_time()
                texts[name] = run()
                seconds[name].append(time.process_time() - started)
    for name, each in seconds.items():
        print(f"{name:24} {statistics.median(each):6.1f} s")
    pairs = zip(texts["generate with the store"], texts["knnmt with the store"], strict=True)
    print(f"{sum(a == b for a, b in pairs)} of {len(sources)} translations with the store are the same")
    print(f"searches, {rounds} rounds: {knn.statistics.searches:,} and {translator.statistics.searches:,}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
