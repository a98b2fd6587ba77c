"""Converts text to token ids and back, with the files of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from knnmt.corpus.sameness import plain
from knnmt.engine.foreign_code import explain_refusal
from knnmt.errors import CheckpointError, MissingDependencyError


class Tokenizer(Protocol):
    """Tokenizer of both sides of a translation pair. The ids of a text end in the model's end token.

    Texts that `knnmt.corpus.sameness` counts as the same have the same ids, in memories and in input texts.
    """

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]: ...

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """Target text, without special tokens."""

    def piece(self, token: int) -> str:
        """A target token as the vocabulary writes it."""


@runtime_checkable
class VocabularyTokenizer(Tokenizer, Protocol):
    """A tokenizer that shows its vocabulary, and can leave special tokens to the caller."""

    def vocabulary(self) -> Mapping[str, int]:
        """Source tokens and their ids, special ones included."""

    def encode_plain(self, texts: Sequence[str], target: bool) -> list[list[int]]:
        """Ids without any special token."""


class JsonTokenizer:
    """`tokenizer.json`, through the `tokenizers` package."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as Fast

        try:
            self._fast = Fast.from_file(str(path))
            self._fast.encode("a")  # some inconsistent files fail only here
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the package raises bare Exception, and a panic is not even that
            raise CheckpointError(f"{path}: not a readable tokenizer.json: {error}") from error
        self._fast.no_padding()
        self._fast.no_truncation()

    def vocabulary(self) -> Mapping[str, int]:
        return self._fast.get_vocab()

    def encode_plain(self, texts: Sequence[str], target: bool) -> list[list[int]]:  # noqa: ARG002 - both sides are alike
        plain_texts = [plain(text) for text in texts]
        return [encoding.ids for encoding in self._fast.encode_batch_fast(plain_texts, add_special_tokens=False)]

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._fast.encode_batch_fast([plain(text) for text in texts])]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encode_sources(texts)

    def decode(self, ids: Sequence[int]) -> str:
        return self._fast.decode(list(ids), skip_special_tokens=True)

    def piece(self, token: int) -> str:
        return self._fast.id_to_token(token) or f"<{token}>"


class TransformersTokenizer:
    """Any other tokenizer (sentencepiece, BPE), through the `transformers` package."""

    def __init__(self, directory: Path) -> None:
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise MissingDependencyError(
                "transformers", f"the tokenizer of {directory}, which has no tokenizer.json,", "transformers"
            ) from error
        try:
            self._slow: Any = AutoTokenizer.from_pretrained(
                str(directory), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # missing files and packages can raise almost any exception there
            explain_refusal(directory, error)
            package = _missing_package(directory, error)
            if package is not None:
                raise MissingDependencyError(package, f"the tokenizer of {directory}", "transformers") from error
            raise CheckpointError(f"{directory}: its tokenizer cannot be loaded: {error}") from error

        self._targets = _fsmt_targets(self._slow)

    def vocabulary(self) -> Mapping[str, int]:
        return {**self._slow.get_vocab(), **getattr(self._slow, "lang_token_to_id", {})}  # M2M100 keeps its codes apart

    def encode_plain(self, texts: Sequence[str], target: bool) -> list[list[int]]:
        # Only Marian reads target text in another way. Other target modes only add a code, which is unwanted here.
        return self._ids(texts, target and hasattr(self._slow, "spm_target"), add_special_tokens=False)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return self._ids(texts, target=False)

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self._ids(texts, target=True)

    def _ids(self, texts: Sequence[str], target: bool, **options: bool) -> list[list[int]]:
        if not texts:
            return []
        plain_texts = [plain(text) for text in texts]
        if target and self._targets is not None:
            tokenizer, given = self._targets, {"text": plain_texts}
        else:
            tokenizer, given = self._slow, {"text_target" if target else "text": plain_texts}
        # The caller checks whether a text is too long for the model, so the tokenizer must not warn.
        ids: list[list[int]] = tokenizer(**given, **options, verbose=False)["input_ids"]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._slow.decode(list(ids), skip_special_tokens=True)
        return text

    def piece(self, token: int) -> str:
        piece: str = self._slow.convert_ids_to_tokens(token)
        return piece


def _missing_package(directory: Path, error: Exception) -> str | None:
    """The package that `transformers` lacks. It asks for tiktoken if protobuf is missing for a sentencepiece model."""
    if any(directory.glob("*.model")):
        try:
            import google.protobuf  # noqa: F401
        except ImportError:
            return "protobuf"
    if not isinstance(error, ImportError):
        return None
    return "sacremoses" if "sacremoses" in str(error) else "sentencepiece"


def _fsmt_targets(tokenizer: Any) -> Any:
    """FSMT's tokenizer only reads source text; a copy with its sides exchanged reads target text."""
    if type(tokenizer).__name__ != "FSMTTokenizer":
        return None
    return type(tokenizer)(
        langs=[tokenizer.tgt_lang, tokenizer.src_lang],
        src_vocab_file=tokenizer.tgt_vocab_file,
        tgt_vocab_file=tokenizer.src_vocab_file,
        merges_file=tokenizer.merges_file,
        do_lower_case=tokenizer.do_lower_case,
    )


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of a checkpoint directory."""
    fast = directory / "tokenizer.json"
    return JsonTokenizer(fast) if fast.is_file() else TransformersTokenizer(directory)
