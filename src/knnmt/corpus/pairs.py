"""The unit of a translation memory, and what else stands for one in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from knnmt.errors import InputError

AnyPair = Any
"""A `SegmentPair`, a tuple or list of a source and its translation, or a mapping or an object that has `source` and
`target`, such as a row of a `datasets.Dataset`; a mapping may also have `translation`, with the texts by language.
"""


@dataclass(frozen=True, slots=True)
class SegmentPair:
    """A source segment with its translation and origin: the file and the unit in it.

    context: where the text is used, if the format states it (msgctxt, a key, neighbours); otherwise empty
    """

    source: str
    target: str
    origin: str
    context: str = ""


def as_pairs(
    pairs: Iterable[AnyPair], languages: tuple[str | None, str | None] = (None, None)
) -> Iterator[SegmentPair]:
    """Pairs of any form, lazily. Those without an origin get their number, `pairs#1` and so on.

    languages: of sources and targets, for texts by language
    """
    for number, pair in enumerate(pairs, 1):
        yield pair if isinstance(pair, SegmentPair) else _pair(pair, number, languages)


def _pair(pair: AnyPair, number: int, languages: tuple[str | None, str | None]) -> SegmentPair:
    def read(name: str) -> Any:
        return pair.get(name) if isinstance(pair, Mapping) else getattr(pair, name, None)

    if isinstance(by_language := read("translation"), Mapping):
        if any(each not in by_language for each in languages):
            wanted = " and ".join(each or "an unknown language" for each in languages)
            raise InputError(
                f"pair {number}: expected texts in {wanted}, found {', '.join(map(str, by_language))}: "
                "give source_lang and target_lang"
            )
        texts = [by_language[each] for each in languages]
    else:
        texts = list(pair) if isinstance(pair, tuple | list) else [read("source"), read("target")]
    if len(texts) != 2 or not all(isinstance(each, str) for each in texts):
        raise InputError(
            f"pair {number}: expected a source and its translation, such as ('Ja.', 'Yes.'), found {repr(pair)[:80]}"
        )
    source, target = texts
    return SegmentPair(source, target, str(read("origin") or f"pairs#{number}"), str(read("context") or ""))
