"""One immutable segment: the entries of some sentences, and the sentences.

| array | type and shape | what it holds |
|---|---|---|
| keys | float16 or float32 (entries, dim) | the decoder's output before the target token, projected if reduced |
| values | int32 (entries,) | the target token, including end tokens |
| sentences | int32 (entries,) | the entry's sentence, numbered within the segment |
| positions | int32 (entries,) | the index of the target token in its sentence |
| target_tokens | int32 (tokens,) | all token ids of every target, one target after the other |
| target_offsets | int64 (sentences + 1,) | where each target begins in target_tokens |
| texts | uint8 (bytes,) | source, target, origin and context of every sentence, UTF-8, one after the other |
| text_offsets | int64 (4 * sentences + 1,) | where each of these texts begins in texts |
| lines | uint8 (sentences,) | 1 for a sentence that is a line of the unit before it and no unit itself |
| source_tokens | int32 (source tokens,) | every source's token ids as the model saw it, one after the other |
| source_offsets | int64 (sentences + 1,) | where each source begins in source_tokens |
| posting_… | | where each source token occurs (`knnmt.datastore.postings`) |
| word_… | | where each word of the sources occurs, for fuzzy matches (see the same module) |
| source_hashes | int64 (sentences,) | hash of each source as the model saw it, to find it without reading texts |
| alignment | uint16 (entries,) | the index of the entry's source token in its source; 65,535 for none |
| log_probabilities | float16 (entries,) | the model's own log-probability of the entry's token |
| first_choices | uint8 (entries,) | 1 if that token was the model's first choice |

Stores made for Fast kNN-MT also have source_states (source tokens, the model's dim): the encoder's output, in the type
of the keys. Pruned stores have counts int32 (entries,): how many entries each one stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array, Buffer, Form, arrays_in, map_stored, require_arrays
from knnmt.datastore.manifest import Manifest, SegmentRecord, StoredFile
from knnmt.datastore.postings import POSTINGS, WORDS, posting_arrays
from knnmt.datastore.prepared import TEXTS
from knnmt.engine.rows import Rows
from knnmt.errors import DatastoreDamagedError

_ADVICE = "Restore the file, or build the store again; `knnmt verify` lists all problems."
MAX_TOKENS = 1 << 24  # in any vocabulary
SOURCE = ("source_tokens", "source_offsets")
SCORES = ("log_probabilities", "first_choices")
NOT_ALIGNED = 0xFFFF
REQUIRED = (
    *("keys", "values", "sentences", "positions", "target_tokens", "target_offsets", "texts", "text_offsets"),
    *("lines", "source_hashes", *SOURCE, *POSTINGS, *WORDS, "alignment", *SCORES),
)
_OPTIONAL = {"source_states", "counts"}
# Arrays of offsets, and the arrays that they divide.
_DIVIDED = {
    "target_offsets": "target_tokens",
    "text_offsets": "texts",
    "source_offsets": "source_tokens",
    "posting_offsets": "posting_sentences",
    "word_offsets": "word_sentences",
}


def forms_of(record: SegmentRecord, manifest: Manifest) -> dict[str, Form]:
    """Type and shape of every array, as in the table above."""
    entries, sentences = record.entries, record.sentences
    return {
        "keys": (manifest.key_dtype, (entries, manifest.dim)),
        **dict.fromkeys(("values", "sentences", "positions", "counts"), ("int32", (entries,))),
        "alignment": ("uint16", (entries,)),
        "log_probabilities": ("float16", (entries,)),
        "first_choices": ("uint8", (entries,)),
        **dict.fromkeys(("target_tokens", "source_tokens"), ("int32", (None,))),
        **dict.fromkeys(("target_offsets", "source_offsets"), ("int64", (sentences + 1,))),
        "texts": ("uint8", (None,)),
        "text_offsets": ("int64", (TEXTS * sentences + 1,)),
        "source_states": (manifest.key_dtype, (None, None)),
        "source_hashes": ("int64", (sentences,)),
        "lines": ("uint8", (sentences,)),
        **dict.fromkeys(("posting_tokens", "posting_sentences", "word_tokens", "word_sentences"), ("int32", (None,))),
        **dict.fromkeys(("posting_offsets", "word_offsets"), ("int64", (None,))),
    }


def require_rows(path: Path, arrays: Mapping[str, Array]) -> None:
    """Refuse arrays that belong together but have other numbers of rows, which their types and shapes do not tell."""
    for name, rows, of, what in (
        ("source_states", 0, "source_tokens", "its source tokens do not have a state each"),
        ("word_offsets", 1, "word_tokens", "its word_offsets are not those of its words"),
        ("posting_offsets", 1, "posting_tokens", "its posting_offsets are not those of its tokens"),
        ("posting_sentences", 0, "source_tokens", "its source tokens do not have a posting each"),
    ):
        if name in arrays and len(arrays[name]) != len(arrays[of]) + rows:
            raise DatastoreDamagedError(f"{path}: {what}. {_ADVICE}")


def sentence_arrays(texts: Rows, targets: Sequence[Sequence[int]]) -> dict[str, Array]:
    """The arrays that hold the sentences of a segment."""
    tokens = Rows.of(targets)
    return {
        "texts": texts.numbers,
        "text_offsets": texts.offsets,
        "target_tokens": tokens.numbers,
        "target_offsets": tokens.offsets,
    }


def source_arrays(sources: Sequence[Sequence[int]]) -> dict[str, Array]:
    """The arrays that hold the source side of a segment: tokens, and where each of them occurs."""
    tokens, offsets = (rows := Rows.of(sources)).numbers, rows.offsets
    return {"source_tokens": tokens, "source_offsets": offsets, **posting_arrays(tokens, offsets)}


def ascending(numbers: Array, each_once: bool = False) -> bool:
    """Whether numbers ascend, strictly if `each_once`. It compares, because differences of extremes would wrap."""
    before, after = numbers[:-1], numbers[1:]
    return bool((before < after if each_once else before <= after).all())


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment mapped for reading, with its removed sentences.

    vocabulary: the number of tokens in the vocabulary
    """

    record: SegmentRecord
    arrays: dict[str, Array]
    removed: Array
    files: tuple[tuple[StoredFile, Buffer], ...]
    path: Path
    vocabulary: int

    @classmethod
    def open(cls, directory: Path, record: SegmentRecord, manifest: Manifest, guarded: bool = False) -> Segment:
        """Map the segment's files and check their sizes and the types and shapes of their arrays; no array is read.

        guarded: as in `map_stored`

        The content of an array is checked when it is used; `knnmt.datastore.verification` checks all of it.
        """
        path = directory / record.stored.file
        content = map_stored(directory, record.stored, guarded)
        found = arrays_in(content, path)
        expected = {*REQUIRED, *(_OPTIONAL & found.keys()), *(["source_states"] if manifest.for_fast else [])}
        forms = {name: form for name, form in forms_of(record, manifest).items() if name in expected}
        require_arrays(path, found, forms)
        arrays = {name: found[name] for name in forms}
        require_rows(path, arrays)
        if record.removed is None:
            return cls(record, arrays, np.empty(0, np.int32), ((record.stored, content),), path, manifest.vocabulary)
        stored = record.removed.stored
        also = map_stored(directory, stored, guarded)
        removed = arrays_in(also, directory / stored.file)
        require_arrays(directory / stored.file, removed, {"removed": ("int32", (record.removed.sentences,))})
        files = ((record.stored, content), (stored, also))
        return cls(record, arrays, removed["removed"], files, path, manifest.vocabulary)

    def pair(self, sentence: int) -> SegmentPair:
        """The texts of a sentence."""
        self._require_sentence(sentence)
        texts = [self.divided("text_offsets", TEXTS * sentence + part) for part in range(TEXTS)]
        try:
            return SegmentPair(*(text.tobytes().decode("utf-8") for text in texts))
        except UnicodeDecodeError as error:
            raise self.damaged(f"the text of sentence {sentence} is not UTF-8") from error

    def target_tokens(self, sentence: int) -> Array:
        """All token ids of the target, even if some of its entries were pruned."""
        self._require_sentence(sentence)
        tokens = self.divided("target_offsets", sentence)
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < self.vocabulary:
            raise self.damaged(f"sentence {sentence} has a token outside the vocabulary of {self.vocabulary:,}")
        return tokens

    def offsets(self, name: str) -> Array:
        """A whole array of offsets, refused unless it divides its array correctly."""
        offsets: Array = self.arrays[name]
        if offsets[0] != 0 or not ascending(offsets) or offsets[-1] != len(self.arrays[_DIVIDED[name]]):
            raise self.damaged(f"{name} do not divide {_DIVIDED[name]}")
        return offsets

    def divided(self, name: str, number: int) -> Array:
        """One of the stretches into which offsets divide an array."""
        begin, end = self.arrays[name][number : number + 2].tolist()
        content: Array = self.arrays[_DIVIDED[name]]
        if not 0 <= begin <= end <= len(content):
            raise self.damaged(f"{name} do not divide {_DIVIDED[name]}")
        return content[begin:end]

    def source_tokens(self) -> Array:
        """The whole array, refused if it holds a token that no model has."""
        tokens: Array = self.arrays["source_tokens"]
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < MAX_TOKENS:
            raise self.damaged("a source token is outside of every vocabulary")
        return tokens

    def words(self) -> dict[str, Array]:
        """The word postings, refused unless they name the segment's sentences and words ascend."""
        found = {name: self.arrays[name] for name in WORDS}
        sentences, words = found["word_sentences"], found["word_tokens"]
        self.offsets("word_offsets")
        if len(sentences) and not 0 <= sentences.min() <= sentences.max() < self.record.sentences:
            raise self.damaged(f"a word has a sentence that is not one of its {self.record.sentences}")
        if not ascending(words, each_once=True):
            raise self.damaged("its words are not in order")
        return found

    def owners(self) -> Array:
        """The whole array `sentences`, refused unless it names an existing sentence for each entry, in order."""
        owners: Array = self.arrays["sentences"]
        if len(owners) and (owners[0] < 0 or owners[-1] >= self.record.sentences or not ascending(owners)):
            raise self.damaged(f"an entry belongs to none of the {self.record.sentences} sentences, or not in order")
        return owners

    def damaged(self, problem: str) -> DatastoreDamagedError:
        """The error to raise if an array holds an impossible value."""
        return DatastoreDamagedError(f"{self.path}: {problem}. {_ADVICE}")

    def _require_sentence(self, sentence: int) -> None:
        if not 0 <= sentence < self.record.sentences:
            raise self.damaged(f"an entry belongs to sentence {sentence} of {self.record.sentences}")

    def gone_sentences(self) -> Array:
        """The removed sentences, refused unless they exist in the segment."""
        if len(self.removed) and not 0 <= self.removed.min() <= self.removed.max() < self.record.sentences:
            raise self.damaged(f"a removed sentence is not one of its {self.record.sentences}")
        return self.removed

    def live_sentences(self) -> Array:
        """Indices of the sentences that were not removed."""
        return np.setdiff1d(np.arange(self.record.sentences), self.removed, assume_unique=True)

    def live_entries(self) -> Array:
        """(entries,) bool: True where the entry's sentence was not removed."""
        return ~np.isin(self.arrays["sentences"], self.removed)

    def pairs(self) -> Iterator[tuple[int, SegmentPair]]:
        """The sentences that were not removed, with their indices."""
        for sentence in self.live_sentences().tolist():
            yield sentence, self.pair(sentence)

    def units(self) -> Iterator[tuple[int, SegmentPair]]:
        """The live units as they were read, without lines of units."""
        return (each for each in self.pairs() if not self.arrays["lines"][each[0]])

    def units_of(self, sentences: Array) -> Array:
        """For each sentence the index of its unit: its own index, unless it is a line."""
        units = np.flatnonzero(self.arrays["lines"] == 0)
        if len(sentences) and not (len(units) and units[0] == 0):
            raise self.damaged("its first sentence is a line of no unit")
        found: Array = units[np.searchsorted(units, sentences, side="right") - 1]
        return found
