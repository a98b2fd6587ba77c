"""How much of a memory's own text is translated as stored, and of text that differs from it only in form.

    python benchmarks/obeyed.py [MEMORY ...] [--stored 600] [--short 150] [--model en-de] [--dtype int8]

Stores of 1 to 168 pairs are made from examples/memory.tsv, and one from all of MEMORY (any format; `make demo` leaves
real catalogs in .demo/catalogs). Everything is translated by decoding, with the settings estimated from the store and
beam 5. Any stored target of a source counts as right, and white space is ignored. Then short segments of MEMORY are
translated with another final mark, other capitals, white space or an accelerator; such differences are ignored.
"""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from knnmt import Datastore, SegmentPair, Translator
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt_lab.scripts import argument_parser, directed

OWN = Path(__file__).parents[1] / "examples" / "memory.tsv"
SIZES = (1, 2, 5, 10, 40, 168)
ASKED = 40  # sources for each store size
FORMS: dict[str, Callable[[str], str]] = {
    "as stored": lambda text: text,
    "full stop": lambda text: f"{text}.",
    "exclamation mark": lambda text: f"{text}!",
    "ellipsis": lambda text: f"{text} …",
    "small letter": lambda text: text[0].lower() + text[1:],
    "capitals": str.upper,
    "spaces": lambda text: f"  {text} ",
    "accelerator": lambda text: f"&{text}",
}


def read(paths: Sequence[Path]) -> list[SegmentPair]:
    return list(read_files(paths, ReadingConfig("de", "en"), ReadingReport()))


def plain(text: str) -> str:
    return " ".join(text.split())


def loose(text: str) -> str:
    """The text without the parts that the forms change."""
    return plain(text).rstrip(" .!?:…").replace("&", "").casefold()


def targets_of(pairs: Sequence[SegmentPair], form: Callable[[str], str]) -> dict[str, set[str]]:
    targets = defaultdict(set)
    for pair in pairs:
        targets[pair.source].add(form(pair.target))
    return targets


def come_back(translator: Translator, place: Path, pairs: Sequence[SegmentPair], sources: Sequence[str]) -> int:
    targets = targets_of(pairs, plain)
    found = translator.translate(sources, datastore=place)
    return sum(plain(each.text) in targets[source] for source, each in zip(sources, found, strict=True))


def small_stores(translator: Translator, builder: Translator, pairs: list[SegmentPair]) -> None:
    for size in SIZES:
        random.Random(0).shuffle(pairs)
        good = asked = 0
        for start in range(0, len(pairs) - size + 1, size):
            some = pairs[start : start + size]
            sources = [pair.source for pair in some[: ASKED - asked]]
            with tempfile.TemporaryDirectory() as scratch:
                place = Path(scratch) / "store"
                Datastore.build(place, some, builder.engine)
                good += come_back(translator, place, some, sources)
                asked += len(sources)
                translator.memories.close(place)
            if asked >= ASKED:
                break
        print(f"{size:>4} pairs: {good} of {asked} stored sources come back", flush=True)


def large_store(translator: Translator, builder: Translator, pairs: list[SegmentPair], stored: int, short: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "store"
        Datastore.build(place, pairs, builder.engine)
        sources = sorted({pair.source for pair in pairs})
        random.Random(0).shuffle(sources)
        asked = sources[:stored]
        good = come_back(translator, place, pairs, asked)
        print(f"{len(pairs):,} pairs: {good} of {len(asked)} stored sources come back", flush=True)
        words = [
            each for each in sources if len(each.split()) <= 3 and each.replace(" ", "").isalpha() and len(each) > 2
        ]
        targets = targets_of(pairs, loose)
        for name, form in FORMS.items():
            found = translator.translate([form(each) for each in words[:short]], datastore=place)
            kept = sum(loose(each.text) in targets[word] for word, each in zip(words, found, strict=False))
            print(f"{name:>16}: {kept} of {len(words[:short])} short segments", flush=True)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("memory", nargs="*", type=Path)
    parser.add_argument("--stored", type=int, default=600)
    parser.add_argument("--short", type=int, default=150)
    parser.add_argument("--model", default="de-en")
    parser.add_argument("--dtype", default="float32")
    arguments = parser.parse_args()
    translator = Translator(arguments.model, device="cpu", dtype=arguments.dtype, exact=True, settings="raw")
    builder = Translator(arguments.model, device="cpu", dtype="float32", settings="raw")  # int8 cannot build
    small_stores(translator, builder, directed(read([OWN]), arguments.model))
    if arguments.memory:
        pairs = directed(read(arguments.memory), arguments.model)
        large_store(translator, builder, pairs, arguments.stored, arguments.short)


if __name__ == "__main__":
    main()
