"""Constrained search finds what a search through everything finds, and keeps all that it must."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knnmt import Datastore
from knnmt.config import Fading, RetrievalConfig
from knnmt.decoding.compiled import CompiledBackend
from knnmt.decoding.requirements import Requirement, Requirements, Words
from knnmt.decoding.search import backend_for, search
from knnmt.engine.forced import force
from knnmt.engine.transformer import TransformerEngine
from knnmt.native import library
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.retrieval.statistics import Statistics
from knnmt.translator.memories import Memories
from support.datastore_pairs import some_pairs
from support.loops import compiled_search, reference_search

END = 0
SOURCES = ["Satz 3 ja ja", "Satz 12", "anders"]


def words(size: int) -> Words:
    """A vocabulary in which everything may stand beside everything."""
    nothing = np.zeros(size, dtype=bool)
    return Words(nothing, nothing, nothing, nothing)


def required(
    engine: TransformerEngine, *sequences: tuple[int, ...], only: Sequence[int] = (), length_penalty: float = 1.0
) -> Requirements:
    mask = np.zeros(engine.vocabulary_size, dtype=bool)
    mask[list(only)] = True
    asked = [Requirement((each,)) for each in sequences]
    return Requirements(asked, mask, words(engine.vocabulary_size), END, length_penalty)


def contains(tokens: Sequence[int], sequence: Sequence[int]) -> int:
    return sum(
        tuple(tokens[place : place + len(sequence)]) == tuple(sequence)
        for place in range(len(tokens) - len(sequence) + 1)
    )


# What is required, token by token ------------------------------------------------------------------------------------

SIZE = 6  # tokens: the end, four others, and one that only stands in what is required
ONLY = 5


def accepted(one: Requirements, tokens: Sequence[int]) -> bool:
    progress = one.begin()
    for token in tokens:
        after = one.after(progress, token)
        if after is None:
            return False
        progress = after
    return True


def by_hand(sequences: Sequence[tuple[int, ...]], tokens: Sequence[int]) -> bool:
    """Whether a hypothesis can be cut into required sequences, each once, and tokens that may stand anywhere."""

    def cuts(rest: Sequence[int], waiting: tuple[int, ...]) -> Iterator[bool]:
        if not rest:
            yield not waiting
            return
        for number in waiting:
            sequence = sequences[number]
            if tuple(rest[: len(sequence)]) == sequence:
                left = tuple(each for each in waiting if each != number)
                yield from cuts(rest[len(sequence) :], left)
        if rest[0] != ONLY:
            yield from cuts(rest[1:], waiting)

    return any(cuts(tokens[:-1], tuple(range(len(sequences))))) and tokens[-1] == END


@given(
    st.lists(st.lists(st.integers(1, ONLY), min_size=1, max_size=3).map(tuple), min_size=1, max_size=2, unique=True),
    st.lists(st.integers(1, ONLY), max_size=7),
)
def test_what_is_accepted_has_all_that_is_required(sequences: list[tuple[int, ...]], tokens: list[int]) -> None:
    only = np.arange(SIZE) == ONLY
    one = Requirements([Requirement((each,)) for each in sequences], only, words(SIZE), END)
    hypothesis = [*tokens, END]
    if accepted(one, hypothesis):
        assert by_hand(sequences, hypothesis)
    for sequence in sequences:  # and what consists of the sequences alone is accepted, unless one begins another
        assert len(sequences) > 1 or accepted(one, [*sequence, END])


def test_one_begun_is_finished_unless_it_may_stand_anywhere() -> None:
    only = np.arange(SIZE) == ONLY
    one = Requirements([Requirement(((ONLY, 1, 2),)), Requirement(((3, 4),))], only, words(SIZE), END)
    begun = one.after(one.begin(), ONLY)
    assert begun is not None
    assert one.only_advances(begun)
    assert [token for token in range(SIZE) if one.after(begun, token) is not None] == [1]
    ordinary = one.after(one.begin(), 3)
    assert ordinary is not None
    assert not one.only_advances(ordinary)
    assert one.after(ordinary, 1) is not None
    assert one.after(one.begin(), END) is None
    assert accepted(one, [3, 3, 4, ONLY, 1, 2, 1, END])
    assert not accepted(one, [3, 4, ONLY, 1, 2, ONLY, 1, 2, END])  # no more than once


def test_words_are_not_glued_to_what_is_required() -> None:
    joins, spaced = (
        np.array([False, True, True, False, False, False]),
        np.array([False, False, False, False, False, True]),
    )
    closing = np.array([False, True, True, False, False, True])
    only = np.arange(SIZE) == ONLY
    blank = np.zeros(SIZE, dtype=bool)
    plain = Requirements([Requirement(((ONLY,),))], only, Words(joins, spaced, closing, blank), END)
    assert not accepted(plain, [ONLY, 1, END])
    assert accepted(plain, [1, ONLY, 3, 1, END])
    glued = Requirements([Requirement(((ONLY,),), joined_after=True)], only, Words(joins, spaced, closing, blank), END)
    assert accepted(glued, [ONLY, 1, END])
    unspaced = Requirements([Requirement(((ONLY,),))], only, Words(joins, ~spaced & False, closing, blank), END)
    assert not accepted(unspaced, [1, ONLY, END])
    assert accepted(unspaced, [3, ONLY, END])


def test_what_is_required_adds_no_second_space() -> None:
    nothing = np.zeros(SIZE, dtype=bool)
    blank, spaced = np.arange(SIZE) == 1, np.isin(np.arange(SIZE), [1, ONLY])
    one = Requirements([Requirement(((ONLY,), (2,)))], nothing, Words(nothing, spaced, nothing, blank), END)
    assert not accepted(one, [1, ONLY, END])
    assert accepted(one, [1, 2, END])  # the same, written without a space
    assert accepted(one, [3, ONLY, END])
    assert accepted(one, [ONLY, END])


# Search --------------------------------------------------------------------------------------------------------------


def test_the_search_finds_what_a_search_through_everything_finds(tiny: TransformerEngine) -> None:
    (source,) = tiny.tokenizer.encode_sources(["Satz"])
    sequence = (40, 41)
    config = replace(tiny.generation, beam=100, n_best=3, max_tokens=4, forced_last_token=None)
    found = search(tiny, [source], config, required=[required(tiny, sequence, length_penalty=0.5)])[0]
    letters = range(1, tiny.vocabulary_size)
    all_of_them = [
        (*sequence, END),
        *((*sequence, one, END) for one in letters),
        *((one, *sequence, END) for one in letters),
    ]
    all_of_them = list(dict.fromkeys(all_of_them))
    block = force(tiny, [source] * len(all_of_them), all_of_them)
    chosen = tiny.log_probabilities(block.representations).gather(1, block.targets[:, None])[:, 0]
    sums = torch.zeros(len(all_of_them)).index_add_(0, block.sentences, chosen)
    scores = [
        float(each) / len(tokens) ** (0.5 * config.length_penalty)
        for each, tokens in zip(sums, all_of_them, strict=True)
    ]
    expected = sorted(zip(scores, all_of_them, strict=True), reverse=True)[:3]
    assert [each.tokens for each in found] == [tokens for _, tokens in expected]
    assert [each.score for each in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_all_is_there_however_much_is_required(tiny: TransformerEngine, beam: int) -> None:
    sources = tiny.tokenizer.encode_sources(SOURCES)
    sequences = [tiny.tokenizer.encode_targets([text])[0][:-1] for text in ("{0}", "%s", "17", "{name}", "x/y")]
    asked = [
        required(tiny, *map(tuple, sequences[: number + 3]), only=[sequence[0] for sequence in sequences])
        for number in range(len(sources))
    ]
    config = replace(tiny.generation, beam=beam)
    for one, found in zip(asked, search(tiny, sources, config, required=asked), strict=True):
        assert found
        for each in one.required:
            assert contains(found[0].tokens, each.sequences[0]) == 1


@pytest.mark.parametrize("forced_last_token", [None, END])
def test_a_sentence_does_not_depend_on_its_batch(tiny: TransformerEngine, forced_last_token: int | None) -> None:
    """Whatever others require, which are longer, or shorter, and have more to be there, or less."""
    sources = tiny.tokenizer.encode_sources([*SOURCES, "a", "ein viel laengerer Satz"])
    asked = [
        required(tiny, (40, 41), (50,)),
        required(tiny, (60, 61, 62)),
        required(tiny, (70,)),
        required(tiny, (33,), length_penalty=0.5),
        required(tiny, (34,), (35,), (36,), (37, 38), (39,)),
    ]
    config = replace(tiny.generation, beam=4, n_best=2, forced_last_token=forced_last_token)
    together = search(tiny, sources, config, required=asked)
    for source, one, found in zip(sources, asked, together, strict=True):
        [alone] = search(tiny, [source], config, required=[one])
        assert [each.tokens for each in found] == [each.tokens for each in alone]
        assert [each.score for each in found] == pytest.approx([each.score for each in alone], abs=1e-4)
    assert all(together)


def test_with_a_memory_it_is_searched_as_otherwise(tiny: TransformerEngine, tmp_path: Path) -> None:
    """What a memory makes certain comes out with the rest required; evidence is recorded for every token."""
    store = Datastore.build(tmp_path / "s", some_pairs(25), tiny)
    settings = RetrievalSettings(k=4, interpolation_weight=0.9, temperature=10.0)
    retrieval = Memories(tiny).retrieval(store, settings)
    sources = tiny.tokenizer.encode_sources(SOURCES)
    config = replace(tiny.generation, beam=4)
    free = search(tiny, sources, config, BatchRetrieval([retrieval] * 3, Statistics()))
    asked = [required(tiny, each[0].tokens[1:3]) for each in free]
    batch = BatchRetrieval([retrieval] * 3, Statistics(), record=True)
    found = search(tiny, sources, config, batch, required=asked)
    for one, before in zip(found, free, strict=True):
        assert contains(one[0].tokens, before[0].tokens[1:3])
        assert len(one[0].rows) == len(one[0].tokens) == len(one[0].base)
    plain = search(tiny, sources, config, required=asked)
    assert [each[0].tokens for each in found] != [each[0].tokens for each in plain]  # the memory is asked


def random_requirements(engine: TransformerEngine, vocabulary: Words, random: np.random.Generator) -> Requirements:
    """Some requirements of few tokens, so that sequences share their beginnings, in a vocabulary with few words."""
    sequences = [tuple(random.integers(30, 37, random.integers(1, 4)).tolist()) for _ in range(random.integers(1, 7))]
    asked = [
        Requirement(tuple(dict.fromkeys(sequences[number : number + 2])), *random.integers(1, [3, 2, 2]).tolist())
        for number in range(0, len(sequences), 2)
    ]
    asked = [replace(each, joined_before=random.random() < 0.5, joined_after=random.random() < 0.5) for each in asked]
    only = np.zeros(engine.vocabulary_size, dtype=bool)
    only[random.integers(20, 60, random.integers(0, 12))] = True
    return Requirements(asked, only, vocabulary, END, random.choice([0.5, 1.0]))


@pytest.mark.skipif(library() is None, reason="nothing was compiled")
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize(
    "forced", [{}, {"forced_first_token": 77, "forced_last_token": END}, {"min_tokens": 6}], ids=str
)
@pytest.mark.parametrize("memory", [False, True])
def test_compiled_steps_find_what_the_reference_finds(
    tiny: TransformerEngine, tmp_path: Path, beam: int, forced: dict[str, Any], memory: bool
) -> None:
    """In every bit with the model alone. With a memory, λ depends on the hypotheses that a sentence really has."""
    random = np.random.default_rng(beam)
    sources = [[*random.integers(4, 200, random.integers(1, 9)).tolist(), END] for _ in range(12)]
    config = replace(tiny.generation, beam=beam, n_best=beam, max_tokens=20, **forced)
    shape = (4, tiny.vocabulary_size)
    vocabulary = Words(*(random.random(shape) < np.array([[0.3], [0.5], [0.3], [0.05]])))
    required = [random_requirements(tiny, vocabulary, random) for _ in sources]
    retrieval: list[Retrieval | None] = [None]
    if memory:
        store = OpenStore(Datastore.build(tmp_path / "s", some_pairs(25), tiny))
        fading = Fading(scale=8.0, width=2.0, sentence_scale=9.0, sentence_width=1.5)
        retrieval += [
            Retrieval(store, RetrievalConfig(5, 0.7, 9.0, fading=fading, segments=4)),
            Retrieval(store, RetrievalConfig(4, 0.6, 20.0)),
        ]
    batches = [
        BatchRetrieval([retrieval[number % 3] for number in range(len(sources))]) if memory else None for _ in range(2)
    ]
    assert backend_for(tiny, config, batches[0], constrained=True).make is CompiledBackend
    found, expected = (
        each(tiny, sources, config, batch, required=required)
        for each, batch in zip((compiled_search, reference_search), batches, strict=True)
    )
    assert sum(map(bool, found)) > len(sources) // 2
    if memory:
        assert [[each.tokens for each in best] for best in found] == [
            [each.tokens for each in best] for best in expected
        ]
        scores = [[each.score for best in every for each in best] for every in (found, expected)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    else:
        assert found == expected


def test_nothing_is_found_where_there_is_no_room(tiny: TransformerEngine) -> None:
    (source,) = tiny.tokenizer.encode_sources(["Satz"])
    config = replace(tiny.generation, beam=2, max_tokens=3)
    assert search(tiny, [source], config, required=[required(tiny, (40, 41, 42, 43))]) == [[]]


@pytest.mark.cuda
def test_a_gpu_finds_the_same(tiny_checkpoint: Path, tiny: TransformerEngine) -> None:
    from knnmt.engine.loading import load_engine

    other = load_engine(tiny_checkpoint, "cuda", "float32")
    sources = tiny.tokenizer.encode_sources(SOURCES)
    asked = [required(tiny, (40, 41), (50,)), required(tiny, (60, 61, 62)), required(tiny, (70,))]
    config = replace(tiny.generation, beam=4)
    here, there = (search(each, sources, config, required=asked) for each in (tiny, other))
    assert [[each.tokens for each in one] for one in here] == [[each.tokens for each in one] for one in there]
