"""Decoding speed on a GPU: the model alone beside `transformers` and beside the limit of memory bandwidth, and kNN-MT
as a ratio to it.

    python benchmarks/gpu_decoding.py [--batches 1 16 64 256] [--beams 5 1] [--rounds 3] [--stores 1M=DIR ...]
    python benchmarks/gpu_decoding.py --large [--synthetic 1000000 ...]

Systems take turns within every round; text is sorted by length and batched alike. Tokens are those of the best
hypotheses. The limit: every weight that a step needs read once, at the bandwidth that a large copy reaches on the spot.
`--large` takes a model of the paper's size with random weights and synthetic keys instead: for speed only, 32 tokens a
sentence. Text: the German side of the development sets under KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from decoding import MODEL, default_text
from knnmt import timing
from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.beam import beam_search
from knnmt.decoding.greedy import greedy_search
from knnmt.decoding.search import search
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval

Decode = Callable[[list[list[int]], int], int]
LARGE_TOKENS = 32


def tokens_in(found: list[list[Any]]) -> int:
    return sum(len(best[0].tokens) for best in found)


def ours(engine: TransformerEngine, retrieval: Retrieval | None, most: int, loops: tuple[Any, Any]) -> Decode:
    def decode(batch: list[list[int]], beam: int) -> int:
        config = replace(engine.generation, beam=beam, max_tokens=most)
        mixed = None if retrieval is None else BatchRetrieval([retrieval] * len(batch))
        return tokens_in(loops[beam == 1](engine, batch, config, mixed))

    return decode


def transformers_system(model_directory: Path, device: str, most: int) -> Decode:
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(model_directory, dtype=torch.float16).eval().to(device)
    pad, end = model.config.pad_token_id, model.config.eos_token_id

    def decode(batch: list[list[int]], beam: int) -> int:
        longest = max(map(len, batch))
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in batch], device=device)
        lengths = torch.tensor([len(row) for row in batch], device=device)
        mask = (torch.arange(longest, device=device) < lengths[:, None]).long()
        with torch.inference_mode():
            found = model.generate(input_ids=ids, attention_mask=mask, num_beams=beam, max_new_tokens=most)
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
    shipped = MarianConfig.from_pretrained(MODEL)
    config = MarianConfig(
        **{
            **shipped.to_dict(),
            **shape,
            "d_model": 1024,
            "vocab_size": 42024,
            "decoder_vocab_size": 42024,
            "forced_eos_token_id": None,
        }
    )
    torch.manual_seed(0)
    MarianMTModel(config).half().save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(MODEL / name, place / name)
    return place


def bandwidth() -> float:
    """Bytes a second that a large copy reads and writes."""
    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(5):
        started, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        started.record()
        target.copy_(source)
        ended.record()
        torch.cuda.synchronize()
        times.append(started.elapsed_time(ended) / 1000)
    return 2 * len(source) / min(times)


def step_bytes(engine: TransformerEngine) -> int:
    """What a step reads of the model: the decoder's weights without the embedding, and the output projection."""
    seen: dict[int, int] = {}

    def walk(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            seen[value.data_ptr()] = value.numel() * value.element_size()
        elif hasattr(value, "__slots__"):
            for name in value.__slots__:
                walk(getattr(value, name))

    for part in (*engine._decoder, engine._output):
        walk(part)
    cross = sum(layer.cross_key_value.weight.numel() * 2 for layer in engine._decoder)
    return sum(seen.values()) - cross


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 16, 64, 256])
    parser.add_argument("--beams", type=int, nargs="*", default=[5, 1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stores", nargs="*", default=[], help="NAME=DIRECTORY of stores to search exactly")
    parser.add_argument("--clustered", nargs="*", default=[], help="the same, searched in clusters")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--no-transformers", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = large_model(Path(scratch)) if arguments.large else MODEL
        run(arguments, directory)


def run(arguments: argparse.Namespace, directory: Path) -> None:
    engine = load_engine(directory, device="cuda")
    assert isinstance(engine, TransformerEngine)
    most = LARGE_TOKENS if arguments.large else engine.generation.max_tokens
    systems = {"knnmt": ours(engine, None, most, (search, search))}
    systems["knnmt, not recorded"] = ours(engine, None, most, (beam_search, greedy_search))
    if not arguments.no_transformers:
        systems["transformers"] = transformers_system(directory, "cuda", most)
    for given in arguments.stores:
        name, _, place = given.partition("=")
        store = OpenStore(Datastore.open(place), engine.device, exact=True)
        config = RetrievalConfig.load(place) if hasattr(RetrievalConfig, "load") else RetrievalConfig()
        systems[f"kNN-MT {name}"] = ours(engine, Retrieval(store, config), most, (search, search))
    sources = sorted(engine.tokenizer.encode_sources(default_text(1024)), key=len)
    speed = bandwidth()
    read = step_bytes(engine)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {engine.dtype}; a copy moves {speed / 1e12:.2f} TB/s; "
        f"a step reads {read / 1e6:.1f} MB of weights: {read / speed * 1e6:.1f} µs at least",
        flush=True,
    )
    print("| batch, beam | system | tokens/s | to knnmt | ms a step | of the limit |\n|---|---|---|---|---|---|")
    for beam in arguments.beams:
        for size in arguments.batches:
            lines = sources[:: max(1, len(sources) // min(1024, 24 * size))]
            batches = [lines[i : i + size] for i in range(0, len(lines), size)]
            times: dict[str, list[float]] = {name: [] for name in systems}
            tokens: dict[str, int] = {}
            for number in range(arguments.rounds + 1):
                for name, decode in systems.items():
                    if name == "transformers" and number > 1:
                        continue
                    torch.cuda.synchronize()
                    started = time.perf_counter()
                    tokens[name] = sum(decode(batch, beam) for batch in batches)
                    torch.cuda.synchronize()
                    if number:
                        times[name].append(time.perf_counter() - started)
            with timing.record() as timings:
                for batch in batches:
                    systems["knnmt"](batch, beam)
            steps = timings.entries["step"]
            rate = {name: tokens[name] / statistics.median(each) for name, each in times.items()}
            for name, each in rate.items():
                step = statistics.median(times[name]) / steps
                print(
                    f"| {size}, {beam} | {name} | {each:,.0f} | {each / rate['knnmt']:.2f} | {1000 * step:.3f} | "
                    f"{read / speed / step:.1%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
