"""Counts placeholders, tags, numbers and terms that stay unaltered, with and without guarantees, and the cost.

    python benchmarks/intact.py [--strings 200] [--places DIRECTORY] [--store] [--form @@{}@@]

The German catalogs of three packages are fetched from the package index (only read, nothing is run). From each, strings
with a placeholder, a tag or a number, chosen by a hash, are translated into English. The script counts placeholders and
tags that are lost or occur more often than in the source, and strings whose tags are badly nested. --store also
translates with a memory of the rest of all three catalogs. Then come a glossary of 100 nouns of the strings, and the
places of tags compared with the reference, by attention and proportionally: the reference is forced through the model
without its tags, which are then put back. Last, the speed of strings with nothing to keep, with and without guarantees,
in turns. --form writes named placeholders, `%(name)s` and `{name}`, in another form, which models have not seen.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from knnmt import Datastore, FilterConfig, Glossary, SegmentPair, Translator, read_memories
from knnmt.corpus.splitting import position
from knnmt.evaluation.scoring import score
from knnmt.protection.marked import Code, Marked, Role
from knnmt.protection.placeholders import Kind, find
from knnmt.protection.tags import with_tags
from knnmt_lab.scripts import argument_parser

PACKAGES = {"wagtail": "wagtail==7.4.4", "Django": "Django==5.2.19", "django-oscar": "django-oscar==4.2.1"}
TERMS = 100
_TURNS = 9
_NAMED = re.compile(r"%\((\w+)\)[sd]|[$#%]?\{(\w+)\}")
_WORD = re.compile(r"[^\W\d_]{5,}")


def catalogs(place: Path, package: str) -> list[Path]:
    """The German message catalogs of a package."""
    wheels = place / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    name = package.partition("==")[0].lower().replace("-", "_")
    if not list(wheels.glob(f"{name}-*.whl")):
        subprocess.run([*pip, "--only-binary=:all:", f"--dest={wheels}", package], check=True)
    (wheel,) = wheels.glob(f"{name}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [each for each in archive.namelist() if "/locale/de/" in each and each.endswith(".po")]
        return [Path(archive.extract(each, place / "catalogs")) for each in names]


def with_something_to_keep(pairs: Sequence[SegmentPair], form: str | None) -> list[SegmentPair]:
    """The pairs with a placeholder, a tag or a number; with a form, those with named placeholders, in this form."""
    if form is None:
        return [pair for pair in pairs if codes_in(pair.source) or find(pair.source)]
    return [in_form(pair, form) for pair in pairs if _NAMED.search(pair.source)]


def in_form(pair: SegmentPair, form: str) -> SegmentPair:
    """A pair with its named placeholders in another form."""
    source, target = (
        _NAMED.sub(lambda name: form.format(name[1] or name[2]), text) for text in (pair.source, pair.target)
    )
    return replace(pair, source=source, target=target)


def codes_in(text: str) -> Counter[str]:
    """Placeholders and tags of a text, recognised in a simple way."""
    marked = with_tags(text)
    found = Counter(part.raw for part in marked if isinstance(part, Code))
    for part in marked:
        if isinstance(part, str):
            found.update(each.text for each in find(part) if each.kind is Kind.EXACT)
    return found


def badly_nested(text: str) -> bool:
    """Whether a tag closes something other than the last opened tag."""
    open_: list[str] = []
    for slash, name, alone in re.findall(r"<(/?)([A-Za-z][\w-]*)[^<>]*?(/?)>", text):
        if alone or name.lower() in {"br", "img", "hr"}:
            continue
        if not slash:
            open_.append(name)
        elif not open_ or open_.pop() != name:
            return True
    return bool(open_)


def report(name: str, pairs: Sequence[SegmentPair], hypotheses: Sequence[str], seconds: float, more: str = "") -> None:
    lost = doubled = whole = nested = 0
    for pair, text in zip(pairs, hypotheses, strict=True):
        wanted, there = codes_in(pair.source), codes_in(text)
        lost += sum((wanted - there).values())
        doubled += sum((there - wanted).values())
        bad = badly_nested(text) and not badly_nested(pair.source)
        nested += bad
        whole += wanted == there and not bad
    total = sum(sum(codes_in(pair.source).values()) for pair in pairs)
    scores = score(hypotheses, [pair.target for pair in pairs])
    print(
        f"  {name:<28} intact {whole}/{len(pairs)}  lost {lost}/{total}  too many {doubled}  badly nested {nested}"
        f"  BLEU {scores.bleu.value:.1f}  chrF {scores.chrf.value:.1f}  {len(pairs) / seconds:.1f} strings/s{more}",
        flush=True,
    )


def translated(
    translator: Translator,
    pairs: Sequence[SegmentPair],
    protect: bool,
    store: Datastore | None = None,
    glossary: Glossary | None = None,
) -> tuple[list[str], float, str]:
    """Texts, seconds, and how often each cost occurred."""
    started = time.perf_counter()
    found = translator.translate(
        [pair.source for pair in pairs], split_sentences=True, protect=protect, datastore=store, glossary=glossary
    )
    told = Counter(caution.kind.__name__ for each in found for caution in each.warnings)
    return [each.text for each in found], time.perf_counter() - started, f"  {dict(told)}" if told else ""


def glossary_of(pairs: Sequence[SegmentPair]) -> Glossary:
    """Words of the sources that often occur with one word of the references: the strongest pair for each word."""
    together: Counter[tuple[str, str]] = Counter()
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    for pair in pairs:
        mine = {word for word in _WORD.findall(pair.source) if word[0].isupper()}
        theirs = {word.lower() for word in _WORD.findall(pair.target)}
        sources.update(mine)
        targets.update(theirs)
        together.update((one, other) for one in mine for other in theirs)
    best: dict[str, tuple[float, str]] = {}
    for (one, other), count in together.items():
        if count >= 5:
            best[one] = max(best.get(one, (0.0, "")), (2 * count / (sources[one] + targets[other]), other))
    ranked = sorted(best.items(), key=lambda each: (-each[1][0], each[0]))
    return Glossary([(source, target) for source, (_, target) in ranked[:TERMS]], "de", "en")


def terms_met(glossary: Glossary, pairs: Sequence[SegmentPair], hypotheses: Sequence[str]) -> str:
    uses = [
        glossary.is_met(use.term, text)
        for pair, text in zip(pairs, hypotheses, strict=True)
        for use in glossary.uses(pair.source)
    ]
    return f"terms met {sum(uses)}/{len(uses)} ({sum(uses) / max(1, len(uses)):.1%})"


def without_tags(text: Marked) -> tuple[str, list[tuple[int, Code]]]:
    words, codes = "", []
    for part in text:
        if isinstance(part, Code):
            codes.append((len(words), part))
        else:
            words += part
    return words, codes


def tag_places(translator: Translator, pairs: Sequence[SegmentPair]) -> None:
    """How often a pair of tags of the reference encloses the same words after it is put back."""
    from knnmt.engine.forced import force
    from knnmt.protection.placing import Placed, arrange, proportional
    from knnmt.translator.code_placing import units_of
    from knnmt.translator.spans import spans_of

    engine = translator.engine
    hits: Counter[str] = Counter()
    total = 0
    for pair in pairs:
        source, target = with_tags(pair.source), with_tags(pair.target)
        raws = [Counter(part.raw for part in side if isinstance(part, Code)) for side in (source, target)]
        (words, codes), (text, _) = without_tags(source), without_tags(target)
        if not codes or raws[0] != raws[1] or not any(code.pair for _, code in codes) or " ".join(text.split()) != text:
            continue
        (ids,), (tokens,) = engine.tokenizer.encode_sources([words]), engine.tokenizer.encode_targets([text])
        if engine.tokenizer.decode(tokens) != text or max(len(ids), len(tokens)) > engine.max_positions:
            continue
        attention = force(engine, [ids], [tokens], cross_attention=True).cross_attention
        assert attention is not None
        rows_of = attention[0].float().numpy()[:, : len(ids) - 1]
        spans, units = spans_of(engine.tokenizer, tokens), units_of(text, find(text))
        prefixes = engine.tokenizer.encode_sources([words[:offset] for offset, _ in codes])
        placed = [
            Placed(code, min(len(prefix) - 1, len(ids) - 1), left=offset > 0 and not words[offset - 1].isspace())
            for (offset, code), prefix in zip(codes, prefixes, strict=True)
        ]
        pairs_here = sum(code.role is Role.OPENING for _, code in codes)
        total += pairs_here
        for name, rows in (("attention", rows_of), ("proportional", None)):
            alignment = proportional(len(units), len(ids) - 1)
            if rows is not None:
                alignment = np.full_like(alignment, 1e-6)
                for (start, end), row in zip(spans, rows, strict=True):
                    for number, (first, last) in enumerate(units):
                        if start < last and first < end:
                            alignment[number] += row
            found = arrange(text, units, placed, alignment).marked
            hits[name] += len(_held(found) & _held(target))
    print(f"tags around the same words as in the reference, of {total} pairs of tags:")
    for name, count in hits.most_common():
        print(f"  {name:<18} {count} ({count / max(1, total):.1%})")


def _held(text: Marked) -> set[tuple[str, str]]:
    """Every pair of tags with the words that it encloses."""
    found: set[tuple[str, str]] = set()
    open_: list[tuple[Code, int]] = []
    parts = [part for part in text if part]
    for number, part in enumerate(parts):
        if isinstance(part, Code) and part.role is Role.OPENING:
            open_.append((part, number))
        elif isinstance(part, Code) and part.role is Role.CLOSING and open_:
            code, first = open_.pop()
            words = "".join(each for each in parts[first:number] if isinstance(each, str))
            found.add((code.raw, " ".join(words.split())))
    return found


def compare_speed(translator: Translator, pairs: Sequence[SegmentPair]) -> None:
    """CPU seconds for text with nothing to keep, free and guaranteed in turns; other programs may run."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    texts: dict[bool, list[str]] = {}
    for turn in range(_TURNS + 1):
        for protect in (turn % 2 == 0, turn % 2 == 1):
            started = time.process_time()
            texts[protect], *_ = translated(translator, pairs, protect)
            if turn:  # the first turn is a warm-up
                seconds[protect].append(time.process_time() - started)
    free, guaranteed = (sorted(seconds[protect]) for protect in (False, True))
    ratios = sorted(one / other for one, other in zip(seconds[True], seconds[False], strict=True))
    print(
        f"{len(pairs)} strings with nothing to keep, {_TURNS} turns: {free[_TURNS // 2]:.2f} s free, "
        f"{guaranteed[_TURNS // 2]:.2f} s guaranteed; ratio {ratios[_TURNS // 2]:.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f}); {sum(map(str.__eq__, texts[True], texts[False]))} the same"
    )


def main() -> None:
    """Run all measurements."""
    options = argument_parser(__doc__)
    options.add_argument("--strings", type=int, default=200)
    options.add_argument("--places", type=Path, default=Path(".intact"))
    options.add_argument("--threads", type=int, default=None)
    options.add_argument("--store", action="store_true")
    options.add_argument("--form")
    options.add_argument("--only", choices=["strings", "terms", "tags", "speed"])
    asked = options.parse_args()
    warnings.simplefilter("ignore")
    translator = Translator(device="cpu", threads=asked.threads, settings="raw")
    all_pairs: dict[str, list[SegmentPair]] = {}
    for name, package in PACKAGES.items():
        files = catalogs(asked.places, package)
        found = {pair.source: pair for pair in read_memories(files, filters=FilterConfig(duplicates=False))}
        all_pairs[name] = sorted(found.values(), key=lambda pair: position(pair.source))
    chosen = {name: with_something_to_keep(pairs, asked.form)[: asked.strings] for name, pairs in all_pairs.items()}
    for name, pairs in chosen.items():
        print(f"{name}: {len(pairs)} of {len(all_pairs[name])} strings")
    test = [pair for pairs in chosen.values() for pair in pairs]
    if asked.only in (None, "strings"):
        ways: dict[str, Datastore | None] = {"the model alone": None}
        if asked.store:
            kept = {pair.source for pair in test} | {pair.target for pair in test}
            memory = [p for pairs in all_pairs.values() for p in pairs if p.source not in kept and p.target not in kept]
            place = asked.places / "rest.store"
            store = Datastore.open(place, translator.engine) if place.exists() else None
            store = store or Datastore.build(place, memory, translator.engine)
            ways["with a memory"] = store
        for way, used in ways.items():
            print(way)
            for name, pairs in chosen.items():
                for protect in (False, True):
                    label = f"{name}, {'guaranteed' if protect else 'free'}"
                    report(label, pairs, *translated(translator, pairs, protect, used))
    if asked.only in (None, "terms"):
        glossary = glossary_of([pair for pairs in all_pairs.values() for pair in pairs])
        using = [pair for pairs in all_pairs.values() for pair in pairs if list(glossary.uses(pair.source))]
        using = sorted(using, key=lambda pair: position(pair.source))[: 3 * asked.strings]
        print(f"glossary of {len(glossary)} terms, {len(using)} strings that use them")
        for name, terms in (("without", None), ("with", glossary)):
            texts, seconds, told = translated(translator, using, True, glossary=terms)
            report(f"{name} the glossary", using, texts, seconds, f"  {terms_met(glossary, using, texts)}{told}")
    if asked.only in (None, "tags"):
        tag_places(translator, [pair for pairs in all_pairs.values() for pair in pairs])
    if asked.only in (None, "speed"):
        plain = [p for pairs in all_pairs.values() for p in pairs if not codes_in(p.source) and not find(p.source)]
        compare_speed(translator, sorted(plain, key=lambda pair: position(pair.source))[: asked.strings])


if __name__ == "__main__":
    main()
