"""From the hypotheses of a text's segments to its translation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest

from knnmt.calibration.certainty import Certainty
from knnmt.config import DecodingConfig
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.tokenizer import Tokenizer
from knnmt.errors import CutTranslationWarning, NoTranslationWarning, SourceKeptWarning
from knnmt.protection.layout import Layout
from knnmt.protection.marked import Code, Marked, written
from knnmt.segments.covering import Coverage
from knnmt.translator.evidence import Evidence
from knnmt.translator.segments import TextSegment, join, laid_out
from knnmt.translator.spans import Span, moved_spans, spans_of
from knnmt.translator.steps import Steps, joined
from knnmt.translator.translation import Caution, Token, Translation


@dataclass(frozen=True, slots=True)
class Part:
    """A hypothesis of a segment, with its evidence on request, and the coverage of the segment.

    evidence: of each token, None for those of the model alone
    text, marked: of a guarded segment, its text without and with codes, including white space around it
    cautions: warnings about it
    by_model_alone: whether a search with the memory gave nothing as good
    decoded: the number of tokens of the longest search that it is made of, if these are not its tokens
    """

    hypothesis: Hypothesis
    evidence: Sequence[Evidence | None] = ()
    steps: Steps | None = None
    coverage: Coverage | None = None
    text: str = ""
    marked: Marked | None = None
    cautions: tuple[Caution, ...] = ()
    by_model_alone: bool = False
    decoded: int | None = None

    @property
    def length(self) -> int:
        """The number of tokens that the search for it gave."""
        return len(self.hypothesis.tokens) if self.decoded is None else self.decoded


def assemble(
    text: str,
    segments: Sequence[TextSegment],
    parts: Sequence[Sequence[Part]],
    tokenizer: Tokenizer,
    config: DecodingConfig,
    language: str | None = None,
    layout: Layout | None = None,
    certainty: Certainty | None = None,
) -> Translation:
    """The translation of a text.

    parts: of each segment, best first
    language: of the translation, if it is known
    layout: of a guarded text
    certainty: estimates how certain it is
    """
    if not segments:
        marked = None if layout is None else layout.filled([])
        return Translation(source=text, text=text, tokens=(), score=0.0, marked=marked)
    for segment, found in zip(segments, parts, strict=True):
        if not found:
            return untranslated(text, _without_translation(segment))
    ranked = [
        _joined_parts(text, segments, [found[rank] for found in parts], tokenizer, config, language, certainty)
        for rank in range(min(map(len, parts)))
    ]
    if layout is not None:
        ranked = [_within(layout, segments, [found[rank] for found in parts], each) for rank, each in enumerate(ranked)]
    best, *others = ranked
    cautions = [caution for found in parts for caution in found[0].cautions]
    if not best.complete:
        words = f"a translation reached the limit of {config.max_tokens} tokens and may be cut off: {text[:60]!r}"
        cautions.append(Caution(CutTranslationWarning, words))
        warnings.warn(words, CutTranslationWarning, stacklevel=2)
    if certainty is not None and any(each.kind is SourceKeptWarning for each in cautions):
        best = replace(best, certainty=0)  # a text that was not translated must be translated
    return replace(best, alternatives=tuple(others), warnings=tuple(cautions))


def _within(
    layout: Layout, segments: Sequence[TextSegment], parts: Sequence[Part], translation: Translation
) -> Translation:
    """A translation of leaves, within the text around them."""
    leaves: list[list[str | Code]] = [[] for _ in layout.leaves]
    for segment, part in zip(segments, parts, strict=True):
        leaves[segment.guarded.leaf if segment.guarded is not None else 0] += part.marked or ()
    marked = layout.filled([tuple(leaf) for leaf in leaves])
    text = written(marked)
    tokens = translation.tokens
    if text != translation.text and any(token.span is not None for token in tokens):
        spans = moved_spans([token.span or (0, 0) for token in tokens], translation.text, text)
        tokens = tuple(replace(token, span=span) for token, span in zip(tokens, spans, strict=True))
    return replace(translation, text=text, tokens=tokens, marked=marked)


def untranslated(text: str, error: str) -> Translation:
    """The result for a text without a translation."""
    caution = Caution(NoTranslationWarning, error)
    return Translation(text, "", (), float("-inf"), complete=False, error=error, warnings=(caution,))


def _without_translation(segment: TextSegment) -> str:
    return (
        f"no translation of {segment.text[:60]!r}: no hypothesis has a probability. Numbers may have overflowed "
        f"(use dtype float32), the memory may be damaged (run `knnmt verify`), or settings forbid every token"
    )


def _joined_parts(
    text: str,
    segments: Sequence[TextSegment],
    parts: Sequence[Part],
    tokenizer: Tokenizer,
    config: DecodingConfig,
    language: str | None,
    certainty: Certainty | None,
) -> Translation:
    hypotheses = [part.hypothesis for part in parts]
    decoded = [
        tokenizer.decode(part.hypothesis.tokens) if part.marked is None or part.evidence else part.text
        for part in parts
    ]
    texts = [
        laid_out(segment, text, language) if part.marked is None else written(part.marked)
        for segment, text, part in zip(segments, decoded, parts, strict=True)
    ]
    tokens: list[Token] = []
    lengths = [len(join([segment], [text])) for segment, text in zip(segments, texts, strict=True)]
    begins = accumulate(lengths[:-1], initial=0)
    for number, (part, begin) in enumerate(zip(parts, begins, strict=True)):
        spans: list[Span] = []
        if part.evidence:
            before = begin + len(segments[number].before)
            spans = moved_spans(spans_of(tokenizer, part.hypothesis.tokens), decoded[number], texts[number])
            spans = [(before + start, before + end) for start, end in spans]
        for token, why, span in zip_longest(part.hypothesis.tokens, part.evidence, spans):
            tokens.append(Token(token, tokenizer.piece(token), why, span))
    steps = [part.steps for part in parts if part.steps is not None]
    summed = sum(each.score * len(each.tokens) ** config.length_penalty for each in hypotheses)
    log_probability = summed / len(tokens)
    return Translation(
        source=text,
        text=join(segments, texts),
        tokens=tuple(tokens),
        log_probability=log_probability,
        score=sum(each.score * len(each.tokens) for each in hypotheses) / len(tokens),
        complete=all(part.length < config.max_tokens for part in parts),
        stored_source=segments[0].text if len(segments) == 1 and segments[0].form else None,
        coverage=_mean_coverage(segments, [part.coverage for part in parts]),
        certainty=None if certainty is None else certainty.of(log_probability),
        steps=joined(steps) if steps and len(steps) == len(parts) else None,
    )


def _mean_coverage(segments: Sequence[TextSegment], coverages: Sequence[Coverage | None]) -> Coverage | None:
    """The coverage of a text: the mean of its segments, weighted by their lengths."""
    found = [(len(segment.text), each) for segment, each in zip(segments, coverages, strict=True) if each]
    if not found:
        return None
    length = sum(size for size, _ in found) or 1
    covered, by_one = (
        sum(size * getattr(each, part) for size, each in found) / length for part in ("covered", "by_one")
    )
    return Coverage(covered, by_one)
