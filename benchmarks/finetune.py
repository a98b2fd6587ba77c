"""Compares kNN-MT with the usual alternative: the shipped model fine-tuned on a domain, fully and as LoRA on attention.

    python benchmarks/finetune.py [--domains it koran law medical] [--pairs 15000] [--lines 500] [--device cuda]

For each domain, the model learns from `--pairs` training pairs until the loss on one half of the development text no
longer improves. `--lines` lines of the other half, and as many of the next named domain, are translated by the model
alone, kNN-MT, both fine-tuned models, and the fully fine-tuned model with kNN-MT on top. A store for a fine-tuned model
is built with that model. Stores are tuned by likelihood on the half that decides when to stop.

Columns: BLEU and chrF on text of the domain and of another (by sacrebleu; if it is not installed, `--hypotheses FILE`
keeps translations, and `--score FILE` scores them elsewhere); how many words of the references that occur 1 to 5 times
in the training text are translated; seconds until the first adapted sentence, to learn one correction and to forget
one; bytes per client; sentences per second. Text comes from KNNMT_DATA (default ../shared). Needs only the light core.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from knnmt.config import BatchingConfig
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_memories
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.splitting import halves, spread
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.batching import batches_by_length
from knnmt.engine.blocks import sinusoidal_positions
from knnmt.engine.forced import fitting_tokens, force_text, score
from knnmt.engine.shipped import DEFAULT_MODEL, MODELS_DIRECTORY
from knnmt.evaluation.tuning import tune
from knnmt.translator.translator import Translator

DOMAINS = ("it", "koran", "law", "medical")
CHECKPOINT = MODELS_DIRECTORY / DEFAULT_MODEL
RATES = {"whole": 2e-4, "lora": 1e-3}
RANK = 16
SMOOTHING, DROPOUT, BATCH_TOKENS = 0.1, 0.1, 3000
RARE = 5
Tokens = Sequence[tuple[list[int], list[int]]]


class Marian(nn.Module):
    """The shipped model with gradients: post-norm, sinusoidal positions, swish, one table for all embeddings.

    lora: the rank of the matrices added to the projections of attention, with all else frozen; 0 to train everything
    """

    def __init__(self, directory: Path, lora: int = 0) -> None:
        super().__init__()
        shape = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        self.heads, self.dim = shape["encoder_attention_heads"], shape["d_model"]
        self.layers = {side: shape[f"{side}_layers"] for side in ("encoder", "decoder")}
        self.padding, self.beginning = shape["pad_token_id"], shape["decoder_start_token_id"]
        tensors = {name: each.float() for name, each in load_file(directory / "model.safetensors").items()}
        self.weights = nn.ParameterDict({_key(name): nn.Parameter(each, not lora) for name, each in tensors.items()})
        self.weights[_key("final_logits_bias")].requires_grad_(False)
        self.lora = nn.ParameterDict()
        for name in tensors if lora else ():
            if re.search(r"attn\.[qkv]_proj\.weight$|attn\.out_proj\.weight$", name):
                self.lora[_key(name) + "_a"] = nn.Parameter(torch.randn(lora, self.dim) / math.sqrt(self.dim))
                self.lora[_key(name) + "_b"] = nn.Parameter(torch.zeros(self.dim, lora))
        self.register_buffer("positions", sinusoidal_positions(shape["max_position_embeddings"], self.dim))

    def weight(self, name: str) -> Tensor:
        found: Tensor = self.weights[_key(name)]
        key = _key(name)
        return found + self.lora[key + "_b"] @ self.lora[key + "_a"] if key + "_a" in self.lora else found

    def linear(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

    def added(self, x: Tensor, more: Tensor, norm: str) -> Tensor:
        x = x + functional.dropout(more, DROPOUT, self.training)
        return functional.layer_norm(x, (self.dim,), self.weight(f"{norm}.weight"), self.weight(f"{norm}.bias"))

    def attention(self, x: Tensor, to: Tensor, name: str, mask: Tensor | None, causal: bool = False) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)

        query, key, value = (
            split(self.linear(y, f"{name}.{part}_proj")) for y, part in ((x, "q"), (to, "k"), (to, "v"))
        )
        found = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
        return self.linear(found.transpose(1, 2).flatten(2), f"{name}.out_proj")

    def embedded(self, tokens: Tensor) -> Tensor:
        table: Tensor = self.weights[_key("model.shared.weight")]
        positions: Tensor = self.positions  # type: ignore[assignment]
        x = functional.embedding(tokens, table) * math.sqrt(self.dim) + positions[: tokens.shape[1]]
        return functional.dropout(x, DROPOUT, self.training)

    def feed_forward(self, x: Tensor, name: str) -> Tensor:
        return self.linear(functional.silu(self.linear(x, f"{name}.fc1")), f"{name}.fc2")

    def forward(self, sources: Tensor, targets: Tensor) -> Tensor:
        """(sentences, source) and (sentences, target) -> logits (sentences, target, vocabulary)."""
        mask = (sources != self.padding)[:, None, None]
        x = self.embedded(sources)
        for number in range(self.layers["encoder"]):
            name = f"model.encoder.layers.{number}"
            x = self.added(x, self.attention(x, x, f"{name}.self_attn", mask), f"{name}.self_attn_layer_norm")
            x = self.added(x, self.feed_forward(x, name), f"{name}.final_layer_norm")
        begin = torch.full_like(targets[:, :1], self.beginning)
        y = self.embedded(torch.cat([begin, targets[:, :-1]], dim=1))
        for number in range(self.layers["decoder"]):
            name = f"model.decoder.layers.{number}"
            y = self.added(y, self.attention(y, y, f"{name}.self_attn", None, True), f"{name}.self_attn_layer_norm")
            y = self.added(y, self.attention(y, x, f"{name}.encoder_attn", mask), f"{name}.encoder_attn_layer_norm")
            y = self.added(y, self.feed_forward(y, name), f"{name}.final_layer_norm")
        table: Tensor = self.weights[_key("model.shared.weight")]
        bias: Tensor = self.weights[_key("final_logits_bias")]
        return functional.linear(y, table, bias[0])

    def loss(self, batch: Tokens, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The sum over all target tokens, in nats, and the number of tokens."""
        device = next(self.parameters()).device
        sources, targets = (
            pad_sequence([torch.tensor(pair[side]) for pair in batch], True, self.padding).to(device) for side in (0, 1)
        )
        real = (
            torch.arange(targets.shape[1], device=device)
            < torch.tensor([len(pair[1]) for pair in batch], device=device)[:, None]
        )
        logits = self(sources, targets)[real]
        return functional.cross_entropy(logits, targets[real], label_smoothing=smoothing, reduction="sum"), len(logits)

    def save(self, directory: Path) -> None:
        """Save a checkpoint that every command reads, with the added matrices merged into the weights."""
        shutil.copytree(CHECKPOINT, directory)
        names = load_file(CHECKPOINT / "model.safetensors").keys()
        with torch.no_grad():
            tensors = {name: self.weight(name).half().cpu().contiguous() for name in names}
        save_file(tensors, directory / "model.safetensors", {"format": "pt"})

    def client_bytes(self) -> int:
        """Bytes that a client needs in addition to the shipped model, in float16."""
        return 2 * sum(each.numel() for each in self.parameters() if each.requires_grad)


def _key(name: str) -> str:
    return name.replace(".", "/")


def checked_against_engine(model: Marian, engine: Any, pairs: Sequence[SegmentPair]) -> float:
    """The largest difference of a sentence's mean log-probability from the engine's, to check that the models agree."""
    forced = force_text(engine, pairs)
    own, _ = score(engine, forced.representations.to(engine.device), forced.targets.to(engine.device))
    lengths = torch.bincount(forced.sentences)
    theirs = torch.stack([part.mean() for part in torch.split(own.cpu(), lengths.tolist())])
    model.eval()
    with torch.no_grad():
        sums = [model.loss([pair]) for pair in fitting_tokens(engine, pairs)]
    return float((theirs + torch.tensor([float(loss) / count for loss, count in sums])).abs().max())


def fine_tuned(model: Marian, training: Tokens, judging: Tokens, rate: float, passes: int, checks: int) -> None:
    """Train until the loss of `judging` has not improved for three checks, `checks` per pass, and keep the best."""
    adam = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], rate, (0.9, 0.98))
    batching = BatchingConfig(sentences=None, tokens=BATCH_TOKENS, window=1 << 30)
    batches = list(batches_by_length([max(map(len, pair)) for pair in training], batching))
    every = max(1, len(batches) // checks)
    generator = torch.Generator().manual_seed(0)
    best, best_state, waited, update = judged(model, judging), copy.deepcopy(model.state_dict()), 0, 0
    tell(f"  before: {best:.4f} nats a token; {len(batches)} batches a pass")
    for _ in range(passes):
        for number in torch.randperm(len(batches), generator=generator).tolist():
            model.train()
            update += 1
            for group in adam.param_groups:
                group["lr"] = rate * min(1.0, update / 100)
            loss, count = model.loss([training[place] for place in batches[number]], SMOOTHING)
            adam.zero_grad()
            (loss / count).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            if update % every:
                continue
            found = judged(model, judging)
            tell(f"  {update} updates: {found:.4f}")
            waited += 1
            if found < best:
                best, best_state, waited = found, copy.deepcopy(model.state_dict()), 0
            if waited == 3:
                model.load_state_dict(best_state)
                return
    model.load_state_dict(best_state)


def judged(model: Marian, pairs: Tokens) -> float:
    model.eval()
    with torch.no_grad():
        parts = [model.loss(pairs[first : first + 16]) for first in range(0, len(pairs), 16)]
    return float(sum(loss for loss, _ in parts)) / sum(count for _, count in parts)


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the table. own, other: hypotheses; None if something is possible only by training again"""

    domain: str
    system: str
    own: list[str]
    other: list[str]
    first_seconds: float
    correction_seconds: float | None
    forgetting_seconds: float | None
    client_bytes: int
    sentences_a_second: float


def measured(
    translator: Translator,
    name: tuple[str, str],
    store: Path | None,
    texts: tuple[list[str], list[str]],
    prepared: float,
    size: int,
) -> Measured:
    """Translate with a model, and with a store if there is one; prepared: seconds that both took to make."""
    how: dict[str, Any] = {"datastore": store}
    began = time.perf_counter()
    translator.translate(texts[0][:1], **how)
    first = prepared + time.perf_counter() - began
    began = time.perf_counter()
    own = [each.text for each in translator.translate(texts[0], **how)]
    speed = len(own) / (time.perf_counter() - began)
    other = [each.text for each in translator.translate(texts[1], **how)]
    correction = forgetting = None
    if store is not None:
        opened = Datastore.open(store, translator.engine)
        pair = SegmentPair("Dies ist eine Berichtigung.", "This is a correction.", "correction")
        began = time.perf_counter()
        opened.add([pair], translator.engine)
        translator.memories.refresh([store])
        translator.translate([pair.source], **how)
        correction = time.perf_counter() - began
        began = time.perf_counter()
        opened.remove(matching(origin="correction"))
        translator.memories.refresh([store])
        forgetting = time.perf_counter() - began
    return Measured(*name, own, other, first, correction, forgetting, size, speed)


def tuned_store(place: Path, pairs: Sequence[SegmentPair], judging: Sequence[SegmentPair], model: Any) -> float:
    """Build a store with a model and tune it; returns seconds."""
    began = time.perf_counter()
    translator: Translator = model
    Datastore.build(place, pairs, translator.engine)
    tune(place, judging, all_dev=True, model=translator)
    return time.perf_counter() - began


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def of_domain(domain: str, other: str, given: argparse.Namespace) -> list[Measured]:
    training = spread(read(domain, "train"), given.pairs)
    judging, reported = halves(read(domain, "dev"))
    judging = spread(judging, given.judged)
    others = halves(read(other, "dev"))[1]
    own_text, other_text = ([pair.source for pair in spread(some, given.lines)] for some in (reported, others))
    texts = own_text, other_text
    found: list[Measured] = []
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        base = Translator(device=given.device, threads=given.threads)
        found.append(measured(base, (domain, "the model alone"), None, texts, 0.0, 0))
        seconds = tuned_store(directory / "base.store", training, judging, base)
        size = _size(directory / "base.store")
        found.append(measured(base, (domain, "kNN-MT"), directory / "base.store", texts, seconds, size))
        tokens, judged_tokens = fitting_tokens(base.engine, training), fitting_tokens(base.engine, judging)
        for kind, label in (("whole", "fine-tuned"), ("lora", f"LoRA, rank {RANK}")):
            torch.manual_seed(0)
            model = Marian(CHECKPOINT, RANK if kind == "lora" else 0)
            model.to(torch.device(given.device or "cpu"))
            if kind == "whole":
                tell(f"{domain}: at most {checked_against_engine(model, base.engine, judging[:4]):.1e} from the engine")
            began = time.perf_counter()
            tell(f"{domain}: {label}")
            fine_tuned(model, tokens, judged_tokens, RATES[kind], given.passes, given.checks)
            model.save(directory / kind)
            seconds = time.perf_counter() - began
            learnt = Translator(directory / kind, device=given.device, threads=given.threads)
            found.append(measured(learnt, (domain, label), None, texts, seconds, model.client_bytes()))
            if kind == "whole":
                place = directory / "learnt.store"
                seconds += tuned_store(place, training, judging, learnt)
                size = model.client_bytes() + _size(place)
                found.append(measured(learnt, (domain, "fine-tuned, kNN-MT on top"), place, texts, seconds, size))
    return found


def _size(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.rglob("*") if each.is_file())


def read(domain: str, part: str) -> list[SegmentPair]:
    path = Path(os.environ.get("KNNMT_DATA", "../shared")) / "data" / domain / f"{part}.tsv.xz"
    if not path.exists():
        sys.exit(f"{path}: no text there; set KNNMT_DATA")
    return list(read_memories([path], ReadingConfig(source_language="de", target_language="en"), ReadingReport()))


def rare_recall(training: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, int]:
    """Words of references that occur 1 to 5 times in the training text: the part found in hypotheses, and how many."""
    seen = Counter(word for text in training for word in words(text))
    came = wanted = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        rare = Counter(word for word in words(reference) if 1 <= seen[word] <= RARE)
        came += (rare & Counter(words(hypothesis))).total()
        wanted += rare.total()
    return came / max(1, wanted), wanted


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def show(found: Sequence[Measured], given: argparse.Namespace) -> None:
    """Print the table, with scores if sacrebleu is installed."""
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        sys.exit("sacrebleu is not installed: give --hypotheses FILE here, and --score FILE elsewhere")
    print(
        "| domain | system | BLEU / chrF | on other text | rare words | first sentence, s | correction, s "
        "| forgetting, s | MB a client | sentences/s |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for each in found:
        other = following(each.domain, given.domains)
        cells = []
        for domain, hypotheses in ((each.domain, each.own), (other, each.other)):
            references = [pair.target for pair in spread(halves(read(domain, "dev"))[1], given.lines)]
            cells.append(
                f"{BLEU().corpus_score(hypotheses, [references]).score:.2f} / "
                f"{CHRF().corpus_score(hypotheses, [references]).score:.2f}"
            )
            if domain == each.domain:
                training = [pair.target for pair in spread(read(domain, "train"), given.pairs)]
                rare, count = rare_recall(training, hypotheses, references)
        seconds = [
            "train again" if s is None else f"{s:.2f}" for s in (each.correction_seconds, each.forgetting_seconds)
        ]
        print(
            f"| {each.domain} | {each.system} | {cells[0]} | {other} {cells[1]} | {rare:.1%} of {count:,} | "
            f"{each.first_seconds:.1f} | {seconds[0]} | {seconds[1]} | {each.client_bytes / 1e6:.1f} | "
            f"{each.sentences_a_second:.1f} |"
        )


def following(domain: str, domains: Sequence[str]) -> str:
    """The next domain, whose text serves as text of another domain."""
    places = list(domains) if len(domains) > 1 else [domain, *(each for each in DOMAINS if each != domain)]
    return next(islice(places, (places.index(domain) + 1) % len(places), None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", nargs="+", default=list(DOMAINS))
    parser.add_argument("--pairs", type=int, default=15000)
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--judged", type=int, default=300, help="pairs that say when to stop")
    parser.add_argument("--passes", type=int, default=20, help="at most")
    parser.add_argument("--checks", type=int, default=2, help="looks at the development text a pass")
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--hypotheses", type=Path)
    parser.add_argument("--score", type=Path)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.score is not None:
        show([Measured(**each) for each in json.loads(given.score.read_text(encoding="utf-8"))], given)
        return
    found: list[Measured] = []
    for domain in given.domains:
        found += of_domain(domain, following(domain, given.domains), given)
        if given.hypotheses is not None:
            given.hypotheses.write_text(json.dumps([asdict(each) for each in found]), encoding="utf-8")
    if given.hypotheses is None:
        show(found, given)


if __name__ == "__main__":
    main()
