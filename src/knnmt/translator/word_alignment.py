"""Which words of a translation come from which words of its source, by the model's own attention.

Words are what white space separates. This is enough to put tags back into a translation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from knnmt.engine.alignment import align
from knnmt.engine.base import Engine
from knnmt.engine.forced import force


@dataclass(frozen=True, slots=True)
class AlignedWords:
    """The words of both sides, and the links between them by position: (source, target), in order."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


def aligned_words(engine: Engine[Any], source: str, target: str) -> AlignedWords:
    """Align a translation with its source. If the model cannot tell, words at the same relative position are linked."""
    words = source.split(), target.split()
    if not all(words):
        return AlignedWords(tuple(words[0]), tuple(words[1]), ())
    links = _by_attention(engine, *words) or _by_place(*map(len, words))
    return AlignedWords(tuple(words[0]), tuple(words[1]), links)


def _by_attention(engine: Engine[Any], source: Sequence[str], target: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """The links from every target token's word to that of its source token; none if the text is too long."""
    before, sources, after = _within_frame(engine, engine.tokenizer.encode_sources(list(source)))
    end = engine.special_tokens.end
    targets = [ids[:-1] if ids[-1:] == [end] else ids for ids in engine.tokenizer.encode_targets(list(target))]
    source_ids = [*before, *(token for ids in sources for token in ids), *after]
    target_ids = [*(token for ids in targets for token in ids), end]
    if max(len(source_ids), len(target_ids)) > engine.max_positions:
        return ()
    attention = force(engine, [source_ids], [target_ids], cross_attention=True).cross_attention
    if attention is None:
        return ()
    aligned = align(attention, [source_ids], [len(target_ids)], {*before, *after})[0].tolist()
    word_of_source = [-1] * len(before) + _numbers(sources) + [-1] * len(after)
    links = {(word_of_source[place], word) for place, word in zip(aligned, _numbers(targets), strict=False)}
    return tuple(sorted(link for link in links if link[0] >= 0))


def _within_frame(engine: Engine[Any], encoded: Sequence[list[int]]) -> tuple[list[int], list[list[int]], list[int]]:
    """The fixed beginning of every source, the tokens of texts, and the fixed end."""
    frame = engine.tokenizer.encode_sources([""])[0]
    count = next(
        (
            count
            for count in range(len(frame) + 1)
            if all(
                ids[:count] == frame[:count] and ids[len(ids) - len(frame) + count :] == frame[count:]
                for ids in encoded
            )
        ),
        0,
    )
    before, after = frame[:count], frame[count:]
    return before, [ids[count : len(ids) - len(after)] for ids in encoded], after


def _numbers(tokens_of_words: Sequence[Sequence[int]]) -> list[int]:
    return [number for number, tokens in enumerate(tokens_of_words) for _ in tokens]


def _by_place(source: int, target: int) -> tuple[tuple[int, int], ...]:
    return tuple(sorted({(place * source // target, place) for place in range(target)}))
