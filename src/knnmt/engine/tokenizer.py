"""Text to token ids and back, by the files a checkpoint brings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from knnmt.errors import CheckpointError, MissingDependencyError


class Tokenizer(Protocol):
    """Both sides of a translation pair; ids of a text end in the model's end token."""

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]: ...

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """Target text, special tokens left out."""

    def piece(self, token: int) -> str:
        """A target token as the vocabulary writes it."""


class JsonTokenizer:
    """`tokenizer.json`, through the `tokenizers` package."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as Fast

        try:
            self._fast = Fast.from_file(str(path))
        except Exception as error:  # the package raises bare Exception
            raise CheckpointError(f"{path}: not a readable tokenizer.json: {error}") from error
        self._fast.no_padding()
        self._fast.no_truncation()

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._fast.encode_batch_fast(list(texts))]

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
            self._slow: Any = AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
        except ImportError as error:
            raise MissingDependencyError("sentencepiece", f"the tokenizer of {directory}", "transformers") from error
        except Exception as error:  # missing files surface there as almost any exception
            raise CheckpointError(f"{directory}: its tokenizer cannot be loaded: {error}") from error

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return self._ids(list(texts)) if texts else []

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self._ids(text_target=list(texts)) if texts else []

    def _ids(self, *texts: list[str], **targets: list[str]) -> list[list[int]]:
        # What is too long for the model is the caller's to say.
        ids: list[list[int]] = self._slow(*texts, **targets, verbose=False)["input_ids"]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._slow.decode(list(ids), skip_special_tokens=True)
        return text

    def piece(self, token: int) -> str:
        piece: str = self._slow.convert_ids_to_tokens(token)
        return piece


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of a checkpoint directory."""
    fast = directory / "tokenizer.json"
    return JsonTokenizer(fast) if fast.is_file() else TransformersTokenizer(directory)
