"""The languages that a model translates between, and how a multilingual model is set to two of them.

A multilingual model has a token for each language, and families put these tokens in different places:

    M2M100, NLLB, mBART-50   source: CODE text end          target: CODE text end, the first token forced
    mBART                    source: text end CODE          target: text end, decoded from CODE on
    older NLLB               source: text end CODE          target: CODE text end
    MADLAD, OPUS-MT          source: TARGET-CODE text end   target: text end
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from knnmt.config import DecodingConfig
from knnmt.engine.base import SpecialTokens
from knnmt.engine.checkpoint import find_checkpoint, read_json, read_tokenizer_config
from knnmt.engine.language_codes import Languages, best_code, require_code, same_language
from knnmt.engine.shipped import MODELS_DIRECTORY
from knnmt.engine.tokenizer import Tokenizer, VocabularyTokenizer
from knnmt.errors import CheckpointError, IgnoredSettingWarning, LanguagesRequiredError, SettingError

_FORMS = {
    "m2m100": re.compile(r"__([a-z]{2,3})__"),
    "nllb": re.compile(r"([a-z]{3}_[A-Z][a-z]{3})"),
    "mbart": re.compile(r"([a-z]{2}_[A-Z]{2})"),
    "madlad": re.compile(r"<2([A-Za-z]{2,3}(?:_\w+)?)>"),
    "opus": re.compile(r">>([A-Za-z]{2,3}(?:[_-]\w+)?)<<"),
}
_FORMS_OF_MODEL = {
    "m2m_100": ("m2m100", "nllb"),
    "nllb-moe": ("nllb",),
    "mbart": ("mbart",),
    "t5": ("madlad",),
    "marian": ("opus",),
}
_FOR_MANY = ("m2m_100", "nllb-moe", "mbart")  # almost all of their models are multilingual
_NAMES_TARGET_ONLY = ("madlad", "opus")


def stated_languages(directory: Path, config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> Languages:
    """The languages that a checkpoint states."""
    if directory.parent == MODELS_DIRECTORY:
        source, target = directory.name.split("-")
        return Languages(source, target)
    pair = config.get("langs") or tokenizer_config.get("langs")  # FSMT states them here
    if isinstance(pair, list | tuple) and len(pair) == 2:
        return Languages(str(pair[0]), str(pair[1]))
    named_source = tokenizer_config.get("source_lang") or tokenizer_config.get("src_lang")
    named_target = tokenizer_config.get("target_lang") or tokenizer_config.get("tgt_lang")
    return Languages(named_source, named_target)


class LanguageTokenizer:
    """A tokenizer whose sources carry language codes.

    before, after: the ids before and after a source
    target_code: the language code that hypotheses begin with; it is not text
    """

    def __init__(
        self,
        plain: VocabularyTokenizer,
        before: Sequence[int],
        after: Sequence[int],
        end: int,
        target_code: int | None = None,
    ) -> None:
        self._plain = plain
        self._before = before
        self._after = after
        self._end = end
        self._target_code = target_code

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*self._before, *ids, *self._after] for ids in self._plain.encode_plain(texts, target=False)]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*ids, self._end] for ids in self._plain.encode_plain(texts, target=True)]

    def decode(self, ids: Sequence[int]) -> str:
        return self._plain.decode([token for token in ids if token != self._target_code])

    def piece(self, token: int) -> str:
        return self._plain.piece(token)


@dataclass(frozen=True, slots=True)
class LanguageSetup:
    """The parts of a model that depend on the languages it was set to."""

    languages: Languages
    tokenizer: Tokenizer
    special_tokens: SpecialTokens
    generation: DecodingConfig

    def require_tokens(self, name: str, vocabulary: int) -> None:
        """Refuse a checkpoint whose files name tokens that its model does not have."""
        special, asked = self.special_tokens, self.generation
        named = {
            "eos_token_id": (special.end,),
            "decoder_start_token_id": (special.decoder_start,),
            "forced_bos_token_id": (asked.forced_first_token,),
            "forced_eos_token_id": (asked.forced_last_token,),
            "suppress_tokens": asked.suppressed_tokens,
            "bad_words_ids": sum(asked.suppressed_sequences, ()),
        }
        for each, tokens in named.items():
            if any(token is not None and not 0 <= token < vocabulary for token in tokens):
                raise CheckpointError(
                    f"{name}: {each} of config.json does not fit weights of {vocabulary:,} tokens. Check that "
                    "config.json, generation_config.json and the weights are from the same checkpoint."
                )

    def text_positions(self, positions: int) -> int:
        """The number of a model's positions that are left for text."""
        return positions - len(self.special_tokens.beginning) + 1


ConfigureLanguages = Callable[[str | None, str | None], LanguageSetup]
"""Returns the parts of a model that depend on its languages, for a source and a target language."""


def configure_languages(
    setup: LanguageSetup,
    model_type: object,
    tokenizer_config: Mapping[str, Any],
    source: str | None,
    target: str | None,
) -> LanguageSetup:
    """Set a model to translate between these languages; raise an error if it cannot."""
    stated, tokenizer = setup.languages, setup.tokenizer
    form, codes = _language_tokens(model_type, tokenizer)
    if not codes or form in _NAMES_TARGET_ONLY:
        _require_stated("source", source, stated)
    if not codes:
        _require_stated("target", target, stated)
        if target is not None and stated.target is None and model_type in _FOR_MANY:
            warnings.warn(
                f"--target-lang {target!r} tells the model nothing: it is a {model_type}, but its tokenizer has no "
                "language codes. Are all of the tokenizer's files there?",
                IgnoredSettingWarning,
                stacklevel=2,
            )
        return setup
    assert isinstance(tokenizer, VocabularyTokenizer)  # noqa: S101 - other tokenizers have no codes
    names = sorted(codes)
    # A multilingual checkpoint that states only one side states a default. Both sides together are a choice.
    if source is None and target is None and (form in _NAMES_TARGET_ONLY or (stated.source and stated.target)):
        source, target = stated.source, best_code(stated.target or "", names)
    target_code = _chosen("target", target, names)
    end = setup.special_tokens.end
    if form in _NAMES_TARGET_ONLY:
        languages = Languages(source or stated.source, target_code, tuple(names))
        wrapped = LanguageTokenizer(tokenizer, [codes[target_code]], [end], end)
        return replace(setup, languages=languages, tokenizer=wrapped)
    source_code = _chosen("source", source, names)
    languages = Languages(source_code, target_code, tuple(names))
    from_, to = codes[source_code], codes[target_code]
    old_mbart = (
        form == "mbart" and tokenizer_config.get("tokenizer_class", "").removesuffix("Fast") != "MBart50Tokenizer"
    )
    after = old_mbart or bool(tokenizer_config.get("legacy_behaviour"))
    before_source, after_source = ([], [end, from_]) if after else ([from_], [end])
    if old_mbart:
        return LanguageSetup(
            languages,
            LanguageTokenizer(tokenizer, before_source, after_source, end),
            replace(setup.special_tokens, decoder_start=to),
            replace(setup.generation, forced_first_token=None),
        )
    return LanguageSetup(
        languages,
        LanguageTokenizer(tokenizer, before_source, after_source, end, to),
        replace(setup.special_tokens, target_code=to),
        replace(setup.generation, forced_first_token=to),
    )


def languages_of_text(model: str | Path, source: str | None, target: str | None) -> tuple[str, str]:
    """The languages given, else those that the model states, else German and English."""
    found = languages_of_model(model, source, target)
    return found[0] or "de", found[1] or "en"


def languages_of_model(model: str | Path, source: str | None, target: str | None) -> tuple[str | None, str | None]:
    """The languages given, else those that the model states; None if it states none."""
    if source is not None and target is not None:
        return source, target
    directory = find_checkpoint(model)
    config = read_json(directory / "config.json")
    stated = stated_languages(directory, config, read_tokenizer_config(directory, config))
    return source or stated.source, target or stated.target


def _require_stated(side: Literal["source", "target"], asked: str | None, stated: Languages) -> None:
    own = getattr(stated, side)
    if asked is not None and own is not None and same_language(asked, own) is False:
        raise SettingError(f"--{side}-lang {asked!r}: the model translates {stated}. Choose another model.")


def _chosen(side: str, asked: str | None, codes: Sequence[str]) -> str:
    if asked is None:
        raise LanguagesRequiredError(
            f"the model has {len(codes)} languages and needs to know which to use: give --{side}-lang "
            f"({side}_lang=), a tag such as de or one of its own codes ({', '.join(codes[:3])}, ...)"
        )
    return require_code(asked, codes, side)


def _language_tokens(model_type: object, tokenizer: Tokenizer) -> tuple[str, dict[str, int]]:
    """The form of the language codes and the token of each code, if the model has any."""
    forms = _FORMS_OF_MODEL.get(model_type, ()) if isinstance(model_type, str) else ()
    if forms and isinstance(tokenizer, VocabularyTokenizer):
        vocabulary = tokenizer.vocabulary()
        for form in forms:
            pattern = _FORMS[form]
            codes = {match[1]: token for name, token in vocabulary.items() if (match := pattern.fullmatch(name))}
            if len(codes) > 1:
                return form, codes
    return "", {}
