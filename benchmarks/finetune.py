"""Compares kNN-MT with the usual alternative: the shipped model fine-tuned on a domain, fully and as LoRA on attention.

    python benchmarks/finetune.py [--domains it koran law medical] [--pairs 15000] [--lines 500] [--device cuda]

For each domain, the model learns from `--pairs` training pairs until the loss on one half of the development text no
longer improves. `--lines` lines of the other half, and as many of another domain, are translated by the model alone,
kNN-MT, both fine-tuned models, and the fully fine-tuned model with kNN-MT on top. A store for a fine-tuned model is
built with that model. Stores are tuned by likelihood on the half that decides when to stop.

Columns: BLEU and chrF on text of the domain and of another (by sacrebleu; if it is not installed, `--hypotheses FILE`
keeps translations, and `--score FILE ...` scores them elsewhere, all seeds and domains together); how many words of the
references that occur 1 to 5 times in the training text are translated; seconds until the first adapted sentence, to
learn one correction and to forget one; bytes per client; sentences per second; passes and seconds of training. Scores
are means of the seeds (`--seed`), times are medians. A second table compares every system with kNN-MT, and trained ones
with the fully fine-tuned model, by a paired bootstrap of sentences and seeds. `--seconds` bounds a training, which then
may not be at its end. Text comes from KNNMT_DATA (default ../shared). Needs only the light core.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from knnmt.adapting.tune import tune
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import halves, spread
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.forced import fitting_tokens
from knnmt.evaluation.scoring import Difference, resampled_scores
from knnmt.translator.translator import Translator
from knnmt_lab.reproduction.choices import over_seeds
from knnmt_lab.scripts import DOMAINS, argument_parser, print_header, print_row, read_domain
from trainable import CHECKPOINT, Marian, Training, checked_against_engine, fine_tuned, tell

RATES = {"whole": 2e-4, "lora": 1e-3}
RANK = 16
RARE = 5
SYSTEMS = ("alone", "knn", "whole", "both", "lora")
MEMORY, TRAINED, ON_TOP, LORA = "kNN-MT", "fine-tuned", "fine-tuned, kNN-MT on top", f"LoRA, rank {RANK}"
COMPARED = (MEMORY, ("the model alone", TRAINED, ON_TOP, LORA)), (TRAINED, (ON_TOP, LORA))


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the table. None if something is possible only by training again, or if nothing was trained.

    own, other: hypotheses; training: `Training`, as a record; seed: of the training
    other_domain: whose text is `other`
    """

    domain: str
    system: str
    own: list[str]
    other: list[str]
    first_seconds: float
    correction_seconds: float | None
    forgetting_seconds: float | None
    client_bytes: int
    sentences_a_second: float
    training: dict[str, Any] | None = None
    seed: int = 0
    other_domain: str = "it"


def measured(
    translator: Translator,
    name: tuple[str, str, str],
    store: Path | None,
    texts: tuple[list[str], list[str]],
    seconds: float,
    size: int,
    training: Training | None = None,
    seed: int = 0,
) -> Measured:
    """Translate with a model, and with a store if there is one; seconds: that both took to make.

    name: domain, system, and the domain of the other text
    """
    how: dict[str, Any] = {"datastore": store}
    began = time.perf_counter()
    translator.translate(texts[0][:1], **how)
    first = seconds + time.perf_counter() - began
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
    trained = None if training is None else asdict(training)
    numbers = first, correction, forgetting, size, speed
    return Measured(name[0], name[1], own, other, *numbers, trained, seed, name[2])


def tuned_store(place: Path, pairs: Sequence[SegmentPair], judging: Sequence[SegmentPair], model: Any) -> float:
    """Build a store with a model and tune it; returns seconds."""
    began = time.perf_counter()
    translator: Translator = model
    Datastore.build(place, pairs, translator.engine)
    tune(place, judging, all_dev=True, model=translator)
    return time.perf_counter() - began


def of_domain(domain: str, other: str, given: argparse.Namespace) -> Iterator[Measured]:
    training = memory_of(domain, given.pairs)
    judging, reported = halves(read_domain(domain, "dev"))
    judging = spread(judging, given.judged)
    others = halves(read_domain(other, "dev"))[1]
    own_text, other_text = ([pair.source for pair in spread(some, given.lines)] for some in (reported, others))
    texts = own_text, other_text
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        base = Translator(device=given.device, threads=given.threads, settings="raw")
        if "alone" in given.systems:
            yield measured(base, (domain, "the model alone", other), None, texts, 0.0, 0)
        if "knn" in given.systems:
            seconds = tuned_store(directory / "base.store", training, judging, base)
            size = _size(directory / "base.store")
            yield measured(base, (domain, MEMORY, other), directory / "base.store", texts, seconds, size)
        tokens, judged_tokens = fitting_tokens(base.engine, training), fitting_tokens(base.engine, judging)
        for kind, label in (("whole", TRAINED), ("lora", LORA)):
            if not {kind, "both" if kind == "whole" else kind} & set(given.systems):
                continue
            torch.manual_seed(given.seed)
            model = Marian(CHECKPOINT, RANK if kind == "lora" else 0)
            model.to(torch.device(given.device or "cpu"))
            if kind == "whole":
                tell(f"{domain}: at most {checked_against_engine(model, base.engine, judging[:4]):.1e} from the engine")
            began = time.perf_counter()
            tell(f"{domain}: {label}")
            limits = given.passes, given.checks, given.seed, given.seconds
            went = fine_tuned(model, tokens, judged_tokens, RATES[kind], *limits)
            model.save(directory / kind)
            seconds = time.perf_counter() - began
            learnt = Translator(directory / kind, device=given.device, threads=given.threads, settings="raw")
            size = model.client_bytes()
            yield measured(learnt, (domain, label, other), None, texts, seconds, size, went, given.seed)
            if kind == "whole" and "both" in given.systems:
                place = directory / "learnt.store"
                seconds += tuned_store(place, training, judging, learnt)
                size += _size(place)
                name = domain, ON_TOP, other
                yield measured(learnt, name, place, texts, seconds, size, went, given.seed)


def _size(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.rglob("*") if each.is_file())


def memory_of(domain: str, pairs: int) -> list[SegmentPair]:
    """This many training pairs from all parts of a domain; 0 for all."""
    found = read_domain(domain, "train")
    return spread(found, pairs) if pairs else found


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
    """Print both tables. Seeds of a system are together."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for each in found:
        groups.setdefault((each.domain, each.system), []).append(each)
    scored = {place: _scored(seeds, given) for place, seeds in groups.items()}
    print_header(
        *("domain", "system", "seeds", "BLEU / chrF", "BLEU of seeds", "on other text", "rare words"),
        *("first sentence, s", "correction, s", "forgetting, s", "MB a client", "sentences/s", "passes", "training, s"),
    )
    for (domain, system), seeds in groups.items():
        one, scores = seeds[0], scored[domain, system]
        own, other = (" / ".join(f"{scores[text][metric][0]:.2f}" for metric in (0, 1)) for text in (0, 1))
        seconds = [
            "train again" if one.training and getattr(one, name) is None else _median(seeds, name, ".2f")
            for name in ("correction_seconds", "forgetting_seconds")
        ]
        print_row(
            domain,
            system,
            len(seeds),
            own,
            _range(scores[0][2]),
            f"{one.other_domain} {other}",
            rare_told(seeds, given),
            _median(seeds, "first_seconds", ".1f"),
            *seconds,
            f"{one.client_bytes / 1e6:.1f}",
            _median(seeds, "sentences_a_second", ".0f"),
            told(seeds),
        )
    print_header("domain", "system", "compared with", "BLEU", "chrF", "BLEU on other text", "chrF")
    for domain in dict.fromkeys(domain for domain, _ in scored):
        for compared, systems in COMPARED:
            for system in systems:
                if {(domain, system), (domain, compared)} <= scored.keys():
                    texts = zip(scored[domain, system], scored[domain, compared], strict=True)
                    metrics = [pair for one, two in texts for pair in zip(one[:2], two[:2], strict=True)]
                    cells = [_difference(one - two) for one, two in metrics]
                    print_row(domain, system, compared, *cells)


def _scored(seeds: Sequence[Measured], given: argparse.Namespace) -> list[tuple[Any, Any, list[float]]]:
    """For text of the domain and of another: BLEU and chrF, resampled with sentences and seeds, and BLEU of each seed.

    The first two are means of the seeds.
    """
    domain = seeds[0].domain
    found = []
    for text, name in ((domain, "own"), (seeds[0].other_domain, "other")):
        references = [pair.target for pair in spread(halves(read_domain(text, "dev"))[1], given.lines)]
        scores = [resampled_scores(getattr(each, name), references) for each in seeds]
        bleu, chrf = (over_seeds([each[metric] for each in scores]) for metric in (0, 1))
        found.append((bleu, chrf, [float(each[0][0]) for each in scores]))
    return found


def rare_told(seeds: Sequence[Measured], given: argparse.Namespace) -> str:
    """The part of the rare words of the references that were translated, as the mean of the seeds."""
    domain = seeds[0].domain
    training = [pair.target for pair in memory_of(domain, given.pairs)]
    references = [pair.target for pair in spread(halves(read_domain(domain, "dev"))[1], given.lines)]
    found = [rare_recall(training, each.own, references) for each in seeds]
    return f"{fmean(part for part, _ in found):.1%} of {found[0][1]:,}"


def _range(scores: Sequence[float]) -> str:
    """The lowest and the highest score, if there are several."""
    return f"{min(scores):.2f} to {max(scores):.2f}" if len(scores) > 1 else ""


def _difference(differences: Any) -> str:
    found = Difference.of(differences)
    return f"{found.value:+.2f} ± {(found.high - found.low) / 2:.2f}, p {found.p_value:.3f}"


def _median(seeds: Sequence[Measured], name: str, form: str) -> str:
    found = [value for each in seeds if (value := getattr(each, name)) is not None]
    return format(median(found), form) if found else ""


def told(seeds: Sequence[Measured]) -> str:
    """The passes over the training text up to the best loss, and the seconds of all updates; two cells."""
    trained = [each.training for each in seeds if each.training is not None]
    if not trained:
        return " | "
    ended = "" if all(each["ended"] for each in trained) else ", not at its end"
    seconds = median(each.get("seconds", 0.0) for each in trained)
    return f"{fmean(each['passes'] for each in trained):.1f}{ended} | {seconds:.0f}"


def following(domain: str, domains: Sequence[str]) -> str:
    """The next domain, whose text serves as text of another domain."""
    places = list(domains) if len(domains) > 1 else [domain, *(each for each in DOMAINS if each != domain)]
    return next(islice(places, (places.index(domain) + 1) % len(places), None))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--domains", nargs="+", default=list(DOMAINS))
    parser.add_argument("--pairs", type=int, default=15000, help="0 for all")
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--judged", type=int, default=300, help="pairs that say when to stop")
    parser.add_argument("--passes", type=int, default=40, help="at most")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of a training, at most")
    parser.add_argument("--checks", type=int, default=2, help="looks at the development text a pass")
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--hypotheses", type=Path)
    parser.add_argument("--score", type=Path, nargs="+", help="files of --hypotheses")
    parser.add_argument("--seed", type=int, default=0, help="of training")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.score is not None:
        files = [json.loads(each.read_text(encoding="utf-8")) for each in given.score]
        show([Measured(**each) for file in files for each in file], given)
        return
    found: list[Measured] = []
    for domain in given.domains:
        for each in of_domain(domain, following(domain, given.domains), given):
            found.append(each)
            if given.hypotheses is not None:
                given.hypotheses.write_text(json.dumps([asdict(some) for some in found]), encoding="utf-8")
    if given.hypotheses is None:
        show(found, given)


if __name__ == "__main__":
    main()
