"""The cost of a store inside `generate` of `transformers`, beside our own decoding: CPU time of one thread.

    python benchmarks/transformers_door.py STORE TEXT [--lines 48] [--rounds 2]

TEXT has a source on each line, or before its first tab.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from knnmt import KNNLogitsProcessor, Translator
from knnmt.engine.shipped import MODELS_DIRECTORY
from knnmt_lab.scripts import argument_parser, print_header, print_row

BATCH, BEAM = 8, 5


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("text", type=Path)
    parser.add_argument("--lines", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    store, rounds = given.store, given.rounds
    torch.set_num_threads(1)
    with given.text.open(encoding="utf-8") as lines:
        sources = sorted((line.rstrip("\n").split("\t")[0] for line in islice(lines, given.lines)), key=len)
    model = AutoModelForSeq2SeqLM.from_pretrained(
        MODELS_DIRECTORY / "de-en", dtype=torch.float32, trust_remote_code=False
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(MODELS_DIRECTORY / "de-en", trust_remote_code=False)
    translator = Translator(device="cpu", settings="raw")

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
    print_header("system", "seconds")
    for name, each in seconds.items():
        print_row(name, f"{statistics.median(each):.1f}")
    pairs = zip(texts["generate with the store"], texts["knnmt with the store"], strict=True)
    print(f"{sum(a == b for a, b in pairs)} of {len(sources)} translations with the store are the same")
    print(f"searches, {rounds} rounds: {knn.statistics.searches:,} and {translator.statistics.searches:,}")


if __name__ == "__main__":
    main()
