"""Checks that a tokenizer belongs to the weights of its model, by the model's own translations.

A tokenizer divides the text of a translation into the tokens that the model made, or nearly always: a text has other
divisions too. With the vocabulary of another model it does not, and keys and values of a datastore would not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from knnmt.config import BatchingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import spread
from knnmt.corpus.units import for_model
from knnmt.decoding.search import search
from knnmt.engine.base import Engine, State
from knnmt.engine.batching import batches_by_length
from knnmt.errors import CheckpointError

_TRANSLATED = 100  # sentences; the longest, because a wrong vocabulary may divide a few words as the right one does
_COMPARED = 400  # sentences of which these are the longest
_MAX_CHARACTERS = 300
_MIN_TRANSLATED = 20  # fewer show nothing
_MIN_SHARE = 0.5  # of translations with the same tokens: 0.82 and more of sound tokenizers, at most 0.37 of a wrong one
_SHOWN = 12  # tokens of the example


@dataclass(frozen=True, slots=True)
class OwnTokens:
    """How many of a model's translations have the same tokens if they are encoded again.

    example: the tokens of a translation and those that the tokenizer makes of its text, if they differ
    """

    translated: int
    same: int
    example: tuple[Sequence[int], Sequence[int]] | None

    @property
    def fits(self) -> bool:
        """Whether the tokenizer belongs to the model, as far as the translations show it."""
        return self.translated < _MIN_TRANSLATED or self.same >= _MIN_SHARE * self.translated


def own_tokens(engine: Engine[State], pairs: Sequence[SegmentPair]) -> OwnTokens:
    """Translate the longest sources of some pairs greedily, and encode the translations again."""
    sources = [for_model(pair).source for pair in spread(pairs, _COMPARED)]
    some = [source for source in sources if len(source) <= _MAX_CHARACTERS]
    encoded = engine.tokenizer.encode_sources(sorted(some, key=len, reverse=True)[:_TRANSLATED])
    encoded = [tokens for tokens in encoded if len(tokens) <= engine.max_positions]
    translated = same = 0
    example = None
    for batch in batches_by_length([*map(len, encoded)], BatchingConfig(sentences=32)):
        longest = min(2 * len(encoded[batch[0]]) + 10, engine.generation.max_tokens)
        config = replace(engine.generation, beam=1, n_best=1, max_tokens=longest)
        for best, *_ in search(engine, [encoded[place] for place in batch], config):
            made = _of_text(engine, best.tokens)
            if not made:  # an empty translation shows nothing
                continue
            again = _of_text(engine, engine.tokenizer.encode_targets([engine.tokenizer.decode(made)])[0])
            translated, same = translated + 1, same + (made == again)
            if made != again and example is None:
                example = made, again
    return OwnTokens(translated, same, example)


def require_own_tokens(engine: Engine[State], pairs: Sequence[SegmentPair]) -> None:
    """Raise an error if the tokenizer does not belong to the weights."""
    found = own_tokens(engine, pairs)
    if found.fits or found.example is None:
        return
    made, again = (" ".join(map(engine.tokenizer.piece, tokens[:_SHOWN])) for tokens in found.example)
    raise CheckpointError(
        f"{engine.name}: its tokenizer does not belong to its weights. Of {found.translated} translations, encoded "
        f"again, only {found.same} have the tokens that the model made; at least half must. For example, the model "
        f"made `{made}`, and the tokenizer makes `{again}` of the same text. Copy all files of the tokenizer "
        f"(tokenizer.json, or vocab.json, source.spm and target.spm) from the checkpoint that the weights come from."
    )


def _of_text(engine: Engine[State], tokens: Sequence[int]) -> list[int]:
    """The tokens without a language code at the beginning and the end token."""
    special = engine.special_tokens
    first = 1 if tokens and tokens[0] == special.target_code else 0
    last = len(tokens) - (1 if tokens and tokens[-1] == special.end else 0)
    return [*tokens[first:last]]
