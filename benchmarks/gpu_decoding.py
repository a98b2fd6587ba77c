"""Decoding speed on a GPU: the model alone beside `transformers` and the bandwidth limit, and kNN-MT beside it.

    python benchmarks/gpu_decoding.py [--batches 1 16 64 256] [--beams 5 1] [--rounds 3] [--transformers]
        [--pairs 58000 0 ...] [--made-up 20000000 ...] [--synthetic 20000000 ...] [--searches exact clusters 128 ...]
        [--large]

Systems take turns within every round; text is sorted by length and batched in the same way for all. Tokens are those of
the best hypotheses, including the end of sentence. The limit assumes that a step reads every weight it needs once, at
the bandwidth of a large copy, which is measured in the same run. With --transformers, "not recorded" is the ordinary
loop, in which the host starts each operation.

--pairs: for each number, a store of this many training pairs of the software domain (0: all), searched exactly and in
clusters, or as --searches says; a number there is the number of segments chosen for each sentence, and the time
includes the choice. --made-up: for each number, a store of this many entries made from the last of these stores, for
speed only. --synthetic: this many keys that were never text, with a λ that changes nothing, for
speed only. --large: a model of the paper's size (269 M parameters, 1024 dimensions) with random weights that writes 32
tokens per sentence, for speed only. Text: development and training sets under KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import gpu_search
import harm
from decoding import MODEL
from knnmt import stage_times
from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.search import Batch, search, search_each
from knnmt.engine.layers import Projection
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.base import Index
from knnmt.retrieval.open_store import OpenStore, Snapshot
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.translator.memories import Memories
from knnmt_lab.scripts import argument_parser, development_sources, print_header
from segment_speed import made_up

Batches = list[list[list[int]]]
Decode = Callable[[Batches, int], int]
LARGE_TOKENS = 32
SENTENCES = 1024


class SyntheticStore(OpenStore):
    """A searchable store that was never text."""

    def __init__(self, index: Index, entries: int, engine: TransformerEngine) -> None:
        values = torch.randint(engine.vocabulary_size, (entries,), dtype=torch.int32, device=engine.device)
        never: Any = None
        of_entries = SimpleNamespace(entries=entries, values=values, counts=None, repeats=None)
        searched: Any = SimpleNamespace(search=index.search, entries=of_entries)
        self.device = engine.device
        self.snapshot = Snapshot(-id(index), never, searched, engine.device, None, 1.0)


def ours(engine: TransformerEngine, retrieval: Retrieval | None, most: int, recorded: bool = True) -> Decode:
    def decode(batches: Batches, beam: int) -> int:
        config = replace(engine.generation, beam=beam, max_tokens=most)
        asked = (Batch(each, (retrieval and BatchRetrieval([retrieval] * len(each))) or None) for each in batches)
        if recorded:
            found = search_each(engine, asked, config)
        else:
            loop = search
            found = (loop(engine, each, config, mixed) for each, mixed, *_ in asked)
        return sum(len(best[0].tokens) for hypotheses in found for best in hypotheses)

    return decode


def transformers_system(model_directory: Path, most: int) -> Decode:
    import transformers
    from transformers import MarianMTModel

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = MarianMTModel.from_pretrained(model_directory, dtype=torch.float16).eval().to("cuda")
    model.generation_config.max_length = most + 1
    pad, end = model.config.pad_token_id, model.config.eos_token_id

    def decode(batches: Batches, beam: int) -> int:
        return sum(decode_one(batch, beam) for batch in batches)

    def decode_one(batch: list[list[int]], beam: int) -> int:
        longest = max(map(len, batch))
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in batch], device="cuda")
        lengths = torch.tensor([len(row) for row in batch], device="cuda")
        mask = (torch.arange(longest, device="cuda") < lengths[:, None]).long()
        with torch.inference_mode():
            found = model.generate(input_ids=ids, attention_mask=mask, num_beams=beam)
        return sum(row[1:].index(end) + 1 if end in row[1:] else len(row) - 1 for row in found.tolist())

    return decode


def large_model(place: Path) -> Path:
    """A checkpoint of the size of wmt19-de-en with random weights; its tokenizer is the shipped one."""
    from transformers import MarianConfig, MarianMTModel

    shape = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 6), ("attention_heads", 16), ("ffn_dim", 8192 if side == "encoder" else 4096))
    }
    given = {**MarianConfig.from_pretrained(MODEL).to_dict(), **shape, "d_model": 1024, "forced_eos_token_id": None}
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**{**given, "vocab_size": 42024, "decoder_vocab_size": 42024}))
    model.half().save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(MODEL / name, place / name)
    return place


def step_bytes(engine: TransformerEngine) -> int:
    """Bytes of the model that a step reads: decoder and output projection, without the projection of sources."""
    seen: dict[int, int] = {}

    def walk(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            seen[value.data_ptr()] = value.numel() * value.element_size()
        for name in getattr(value, "__slots__", ()):
            walk(getattr(value, name))

    for part in (*engine._decoder, engine._output):
        walk(part)
    of_source = [layer.cross_key_value for layer in engine._decoder]
    return sum(seen.values()) - sum(each.weight.nbytes for each in of_source if isinstance(each, Projection))


def with_memories(
    arguments: argparse.Namespace, engine: TransformerEngine, most: int, place: Path
) -> dict[str, Decode]:
    """kNN-MT with real stores, then with synthetic ones."""
    systems: dict[str, Decode] = {}
    asked = [*((pairs, 0) for pairs in arguments.pairs), *((0, entries) for entries in arguments.made_up)]
    real = place / "none"
    for pairs, larger in asked:
        store = place / f"{pairs}-{larger}"
        started = time.perf_counter()
        if larger:
            made_up(Datastore.open(real), store, larger)
        else:
            harm.build(store, "it", pairs, argparse.Namespace(engine=engine))  # type: ignore[arg-type]
            real = store
        print(f"built in {time.perf_counter() - started:.0f} s", flush=True)
        for how in arguments.searches:
            memory = Memories(engine, exact=how != "clusters")
            segments = int(how) if how.isdecimal() else None
            retrieval = memory.retrieval(store, RetrievalSettings(segments=segments))
            name = f"kNN-MT, {retrieval.store.snapshot.size / 1e6:.2f} M entries, {how}"
            print(f"{how}: {retrieval.store.index.description}", flush=True)
            systems[name if segments is None else f"{name} segments"] = ours(engine, retrieval, most)
    for count in arguments.synthetic:
        centres = torch.randn(
            (count // 64, engine.dim), device="cuda", generator=torch.Generator("cuda").manual_seed(0)
        )
        exact, clusters, _ = gpu_search.made(count, centres)
        indexes: dict[str, Index] = {"exact": exact, "clusters": clusters}
        config = RetrievalConfig(k=8, interpolation_weight=1e-6, temperature=30)
        for how in indexes.keys() & arguments.searches:
            retrieval = Retrieval(SyntheticStore(indexes[how], count, engine), config)
            systems[f"kNN-MT, {count / 1e6:.0f} M synthetic entries, {how}"] = ours(engine, retrieval, most)
    return systems


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 16, 64, 256])
    parser.add_argument("--beams", type=int, nargs="*", default=[5, 1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("--pairs", type=int, nargs="*", default=[])
    parser.add_argument("--synthetic", type=int, nargs="*", default=[])
    parser.add_argument("--made-up", type=int, nargs="*", default=[])
    parser.add_argument("--searches", nargs="*", default=["exact", "clusters"])
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run(arguments, large_model(Path(scratch) / "large") if arguments.large else MODEL, Path(scratch))


def run(arguments: argparse.Namespace, directory: Path, scratch: Path) -> None:
    engine = load_engine(directory, device="cuda")
    assert isinstance(engine, TransformerEngine)
    most = LARGE_TOKENS if arguments.large else 200
    systems = {"knnmt": ours(engine, None, most)}
    if arguments.transformers:
        systems["knnmt, not recorded"] = ours(engine, None, most, recorded=False)
        systems["transformers"] = transformers_system(directory, most)
    systems |= with_memories(arguments, engine, most, scratch)
    sources = sorted(engine.tokenizer.encode_sources(development_sources(SENTENCES)), key=len)
    speed = 1e9 * gpu_search.limits(engine.device)[0]
    read = step_bytes(engine)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {engine.dtype}")
    print(f"a copy moves {speed / 1e12:.2f} TB/s")
    print(f"a step reads {read / 1e6:.1f} MB of weights: {read / speed * 1e6:.1f} µs at least\n")
    print_header("batch, beam", "system", "tokens/s", "to knnmt", "ms a step", "of the limit")
    for beam in arguments.beams:
        for size in arguments.batches:
            lines = sources[:: max(1, len(sources) // (24 * size))]
            batches = [lines[i : i + size] for i in range(0, len(lines), size)]
            measure(systems, batches, beam, arguments.rounds, partial(print, flush=True), read / speed)


def measure(systems: dict[str, Decode], batches: Batches, beam: int, rounds: int, say: Any, limit: float) -> None:
    """Table lines for one batch size and one beam. `transformers` gets every fourth batch, and one round."""
    rates: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(rounds + 1):
        for name, decode in systems.items():
            slow = name == "transformers"
            if slow and number > 1:
                continue
            mine = batches[1::4] or batches if slow else batches
            torch.cuda.synchronize()
            started = time.perf_counter()
            tokens = decode(mine, beam)
            torch.cuda.synchronize()
            if number:
                rates[name].append(tokens / (time.perf_counter() - started))
    with stage_times() as timings:
        tokens = systems["knnmt"](batches, beam)
    tokens_a_step = tokens / timings.entries["step"]
    ours_rate = statistics.median(rates["knnmt"])
    for name, each in rates.items():
        rate = statistics.median(each)
        step = tokens_a_step / rate
        row = f"{name} | {rate:,.0f} | {rate / ours_rate:.2f} | {1000 * step:.3f} | {limit / step:.1%}"
        say(f"| {len(batches[0])}, {beam} | {row} |")


if __name__ == "__main__":
    main()
