"""The available kinds of FAISS index, with their default search settings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from knnmt.config import check
from knnmt.errors import SettingError
from knnmt.extensions import INDEX_KINDS, named

EXACT = "exact"
_MAX_LISTS = 4096
_MAX_PROBED = 1 << 24  # probes or candidates; compiled code counts in 32 bits
_MIN_KEYS_PER_LIST = 39  # with fewer, FAISS itself warns of poor training of a list's centre


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How an index is searched.

    probes: number of lists searched per query
    candidates: number measured again with the store's own keys; with 0, FAISS's distances are the result
    reach: lists whose centre is more than this many times as far as the nearest one, in squared distance, are skipped;
        0 skips none. A query near one centre needs few lists; a query between many centres needs more.
    """

    probes: int
    candidates: int
    reach: float = 0.0

    def __post_init__(self) -> None:
        check(1 <= self.probes <= _MAX_PROBED, f"probes must lie between 1 and {_MAX_PROBED:,}, got {self.probes}")
        check(
            0 <= self.candidates <= _MAX_PROBED,
            f"candidates must lie between 0 and {_MAX_PROBED:,}, got {self.candidates}",
        )
        sound = self.reach == 0 or 1 <= self.reach < math.inf
        check(sound, f"reach must be 0, or a number of at least 1, got {self.reach}")

    @property
    def signature(self) -> str:
        """Identifies the settings in the signature of a published score."""
        limit = f"~{self.reach:g}" if self.reach else ""
        return f"{self.probes}{limit}" + (f"/{self.candidates}" if self.candidates else "")

    @property
    def in_words(self) -> str:
        """The settings in words."""
        limit = f" within {self.reach:g}" if self.reach else ""
        return f"{self.probes} probes{limit}" + (f", {self.candidates} re-ranked" if self.candidates else "")

    def times(self, part: float) -> SearchSettings:
        """Settings wider or narrower by a factor; the reach never becomes smaller."""
        reach = 1 + (self.reach - 1) * max(1, part) if self.reach else 0.0
        return SearchSettings(max(1, int(self.probes * part)), self.candidates, reach)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of FAISS index.

    recipe: (entries, dim) -> the string for FAISS's index factory
    bytes_per_entry: dim -> approximate number of bytes of an entry in memory and on disk
    training_per_list: number of training keys per list; training_rounds: number of passes over them
    """

    name: str
    description: str
    recipe: Callable[[int, int], str]
    settings: SearchSettings
    bytes_per_entry: Callable[[int], int]
    training_per_list: int = 64
    training_rounds: int = 10

    def factory(self, entries: int, dim: int) -> str:
        """The factory string for a store. With too few entries to train on, every kind is a flat index."""
        return "Flat" if entries < max(256, 2 * dim) else self.recipe(entries, dim)


def lists_for(entries: int) -> int:
    """About 2√entries lists: a power of two, small enough that each list can be trained."""
    most = min(2 * math.sqrt(entries), _MAX_LISTS, entries / _MIN_KEYS_PER_LIST)
    return 1 << int(math.log2(max(most, 1)))


def papers_lists(entries: int) -> int:
    """4096 lists, as in the paper for stores of any size, if each list can be trained; else as `lists_for`."""
    return _MAX_LISTS if entries >= _MIN_KEYS_PER_LIST * _MAX_LISTS else lists_for(entries)


def codes_for(dim: int, most: int = 64) -> int:
    """The largest number of codes, at most `most`, that divides a key into equal parts."""
    return max(codes for codes in range(1, most + 1) if dim % codes == 0)


def _reduced(dim: int) -> int:
    """The number of dimensions that the four-bit codes keep, one per code; FAISS needs an even number."""
    return min(160, dim - dim % 2) or 1


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "ivfpq",
            "the paper's: product quantisation, distances approximate",
            lambda entries, dim: f"IVF{papers_lists(entries)},PQ{codes_for(dim)}x8np",
            SearchSettings(probes=32, candidates=0),
            lambda dim: codes_for(dim) + 8,
            training_per_list=_MIN_KEYS_PER_LIST,  # more would take minutes with this many lists
            training_rounds=4,
        ),
        Kind(
            "rabitq",
            "codes of one bit per dimension in lists propose; the store's keys decide",
            lambda entries, _dim: f"IVF{lists_for(entries)},RaBitQfs",
            SearchSettings(probes=16, candidates=64),
            lambda dim: dim // 8 + 32,
        ),
        Kind(
            "pq4",
            "codes of four bits per dimension of reduced keys in lists propose; the store's keys decide",
            lambda entries, dim: f"PCAR{_reduced(dim)},IVF{lists_for(entries)},PQ{_reduced(dim)}x4fs",
            SearchSettings(probes=24, candidates=32, reach=1.6),
            lambda dim: _reduced(dim) // 2 + 18,
        ),
    )
}


BUILT_IN = tuple(KINDS)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


def could_be_a_kind(name: str) -> bool:
    """Whether a custom kind may have this name; the name is part of file names."""
    return _NAME.fullmatch(name) is not None and name != EXACT


def register_kind(kind: Kind) -> None:
    """Make a custom kind known in this process, like those of `KINDS`."""
    check(could_be_a_kind(kind.name), f"an index kind needs a name of small letters, digits and -, got {kind.name!r}")
    check(kind.name not in BUILT_IN, f"{kind.name!r} is a kind of knnmt; choose another name for yours")
    KINDS[kind.name] = kind


def typed_kind(text: str) -> str:
    """The name of a kind that a user typed: a known kind, or `package.module:NAME` of a custom kind."""
    if text == EXACT or text in KINDS:
        return text
    try:
        kind = named(text, INDEX_KINDS, "index kind")
    except SettingError as error:
        there = ", ".join([EXACT, *KINDS])
        raise SettingError(f"--kind must be one of {there} or all, or name your own: {error}") from error
    check(isinstance(kind, Kind), f"--kind {text}: expected a knnmt.index.kinds.Kind, found {type(kind).__name__}")
    register_kind(kind)
    return str(kind.name)


def kind_named(name: str) -> Kind:
    """The FAISS kind with this name."""
    check(name in KINDS, f"index kind must be one of {', '.join([EXACT, *KINDS])}, got {name!r}")
    return KINDS[name]
