"""Makes the arrays that segments of earlier versions lack, from the data that they have.

The tokenizer alone makes source tokens from the texts; alignment and scores need a forced pass. Keys, entry ids and
indexes stay unchanged: the new arrays are written into a file beside the segment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from knnmt.corpus.accelerators import Accelerators
from knnmt.corpus.match_tokens import word_hashes
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import sameness_hash
from knnmt.corpus.units import for_model
from knnmt.datastore.arrays import Array, write_stored
from knnmt.datastore.manifest import Manifest, StoredFile
from knnmt.datastore.merging import sound_arrays
from knnmt.datastore.postings import POSTINGS, WORDS, posting_arrays, word_arrays
from knnmt.datastore.segment import SCORES, SOURCE, Segment, source_arrays
from knnmt.engine.base import Engine
from knnmt.engine.rows import Rows
from knnmt.engine.tokenizer import Tokenizer
from knnmt.errors import SettingError

_OF_TEXT = ("source_hashes", *SOURCE, *POSTINGS, *WORDS)
_OF_A_PASS = ("alignment", *SCORES)
SUPPLIED = (*_OF_TEXT, *_OF_A_PASS)


def lacking(segment: Segment, passes: bool = True) -> list[str]:
    """The arrays of the current version that a segment lacks; `passes`: including those that need a forced pass."""
    return [name for name in (SUPPLIED if passes else _OF_TEXT) if name not in segment.arrays]


def source_side(segment: Segment, tokenizer: Tokenizer, accelerators: Accelerators) -> dict[str, Array]:
    """The source tokens and postings of a segment, made again even if it has them."""
    if "source_tokens" in segment.arrays:
        tokens, offsets = segment.source_tokens(), segment.offsets("source_offsets")
        return {"source_tokens": tokens, "source_offsets": offsets, **posting_arrays(tokens, offsets)}
    return source_arrays(tokenizer.encode_sources([pair.source for pair in _seen(segment, accelerators)]))


def words_of(segment: Segment, accelerators: Accelerators) -> dict[str, Array]:
    """The word postings of a segment's sources, made again even if it has them."""
    return segment.words() or word_arrays([word_hashes(pair.source) for pair in _seen(segment, accelerators)])


def _seen(segment: Segment, accelerators: Accelerators) -> list[SegmentPair]:
    """Its pairs as the model saw them, including removed ones."""
    return [for_model(segment.pair(sentence), accelerators) for sentence in range(segment.record.sentences)]


def supplement(segment: Segment, engine: Engine[Any], manifest: Manifest, passes: bool = True) -> dict[str, Array]:
    """The arrays that a segment lacks."""
    missing = lacking(segment, passes)
    if not missing:
        return {}
    sound_arrays(segment)
    made = source_side(segment, engine.tokenizer, manifest.accelerators)
    if "source_hashes" in missing:
        seen = [source.source for source in _seen(segment, manifest.accelerators)]
        made["source_hashes"] = np.array([sameness_hash(source) for source in seen], np.int64)
    if "word_tokens" in missing:
        made |= words_of(segment, manifest.accelerators)
    if any(name in missing for name in _OF_A_PASS):
        made |= _of_a_pass(segment, engine, made)
    return {name: made[name] for name in missing}


def write_supplement(directory: Path, segment: Segment, made: dict[str, Array], generation: int) -> StoredFile:
    """Write arrays for a segment into a file beside it, with the arrays that such a file already has."""
    if segment.record.supplement is not None:
        made = {name: segment.arrays[name] for name in SUPPLIED if name in segment.arrays} | made
    number = segment.record.stored.file.partition("-")[0]
    return write_stored(directory, f"{number}-supplement-g{generation}.safetensors", made)


def _of_a_pass(segment: Segment, engine: Engine[Any], source: dict[str, Array]) -> dict[str, Array]:
    """Alignment and scores of a segment's entries, which may be fewer than its tokens because of pruning."""
    from knnmt.datastore.passing import begin_passes  # it imports PyTorch

    sources = Rows(source["source_tokens"], source["source_offsets"])
    targets = Rows.of([segment.target_tokens(sentence).tolist() for sentence in range(segment.record.sentences)])
    passed = begin_passes(engine, sources, targets, "float32", None, for_fast=False)()
    if passed is None:
        raise SettingError(f"{segment.path}: {engine.name} gives a key that is no finite number; load it in float32")
    places = segment.offsets("target_offsets")[segment.owners()] + segment.arrays["positions"]
    if len(places) and not 0 <= places.min() <= places.max() < len(targets.numbers):
        raise segment.damaged("an entry's position is outside its sentence")
    return {name: passed[name][places] for name in _OF_A_PASS}
