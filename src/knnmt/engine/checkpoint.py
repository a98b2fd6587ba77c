"""Checkpoint directories in the Hugging Face layout: finding them, and reading their files."""

from __future__ import annotations

import hashlib
import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from knnmt.config import DecodingConfig
from knnmt.engine.base import Fingerprint, SpecialTokens
from knnmt.engine.shipped import MODELS_DIRECTORY, shipped_models
from knnmt.errors import (
    CheckpointError,
    IgnoredSettingWarning,
    MissingDependencyError,
    ModelNotFoundError,
    SettingError,
)
from knnmt.records import as_record, as_type, parse_json, shown
from knnmt.regular_files import open_regular, read_regular

if TYPE_CHECKING:
    from torch import Tensor

_HUB_FILES = ["*.json", "*.safetensors", "pytorch_model*.bin", "*.spm", "*.model", "*.txt"]


class NamedByStore(str):
    """The name of a model that comes from a store. No user typed it, so nothing is downloaded for it."""

    __slots__ = ()


def find_checkpoint(model: str | Path) -> Path:
    """The directory of a shipped model, a local directory, or a Hugging Face name (fetched once, then kept).

    A model that a store names must be on this machine already, for instance in the hub's cache: a file from elsewhere
    must not cause a network connection.
    """
    if model in shipped_models():  # write ./NAME for a directory of the same name
        return MODELS_DIRECTORY / str(model)
    if isinstance(model, NamedByStore):
        return _find_here(model)
    directory = Path(model).expanduser()
    if directory.is_dir():
        return directory
    if directory.exists():
        raise ModelNotFoundError(
            f"{model}: expected a checkpoint directory, found a file. Give the directory of the file."
        )
    name = str(model)
    if isinstance(model, str) and _may_be_on_the_hub(name):
        return _fetch(name)
    raise ModelNotFoundError(f"{model}: no such directory. {_what_there_is()}")


def _find_here(name: NamedByStore) -> Path:
    """A checkpoint on this machine."""
    elsewhere = name.startswith(("//", "\\\\"))  # Windows would send the user's credentials there
    if not elsewhere and (directory := Path(name).expanduser()).is_dir():
        return directory
    advice = "Give the directory where it is now: --model DIRECTORY."
    if _may_be_on_the_hub(name):
        try:
            from huggingface_hub import snapshot_download

            return Path(snapshot_download(name, allow_patterns=_HUB_FILES, local_files_only=True))
        except (ImportError, ValueError, OSError):  # hub package not installed; not a hub name; not in the cache
            advice = f"If you trust that name, give it yourself: --model {shlex.quote(name)}; or --model DIRECTORY."
    raise ModelNotFoundError(
        f"the store was built with the model {str(name)!r}, which is not on this machine; knnmt does not download a "
        f"model because a store names it. {advice}"
    )


def _may_be_on_the_hub(name: str) -> bool:
    return name.count("/") <= 1 and not name.startswith((".", "/", "~", "\\"))


def _what_there_is() -> str:
    return (
        f"A model is one of those shipped ({', '.join(shipped_models())}), a local directory with config.json, weights "
        "and tokenizer, or a Hugging Face name such as Helsinki-NLP/opus-mt-de-en."
    )


def _fetch(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError as error:
        purpose = f"{name}: no such directory here. {_what_there_is()} Fetching from the hub"
        raise MissingDependencyError("huggingface_hub", purpose, "hub") from error
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelNotFoundError(
            f"{name}: no such directory, and no such model on the hub. {_what_there_is()}"
        ) from error
    except (LocalEntryNotFoundError, OSError) as error:
        raise ModelNotFoundError(
            f"{name}: no such directory here, and the hub cannot be reached ({type(error).__name__}). "
            f"{_what_there_is()} Without a network, copy the checkpoint's directory here and give its path."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a checkpoint's file."""
    try:
        content = parse_json(read_regular(path, links=True))  # the hub's cache is made of links
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path.parent}: expected a checkpoint with {path.name}, found none. "
            "A checkpoint directory has config.json, model.safetensors (or pytorch_model.bin) and a tokenizer."
        ) from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def read_tokenizer_config(directory: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`tokenizer_config.json` if there is one; older checkpoints name the tokenizer's class in `config.json`."""
    path = directory / "tokenizer_config.json"
    older = {"tokenizer_class": config.get("tokenizer_class")}
    found = {**older, **(read_json(path) if path.is_file() else {})}
    for name in ("tokenizer_class", "source_lang", "src_lang", "target_lang", "tgt_lang"):
        try:
            as_type(str | None, found.get(name), name)
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error
    return {name: value for name, value in found.items() if value is not None}


def load_tensors(directory: Path) -> Mapping[str, Tensor]:
    """All weights of a checkpoint; nothing in the files is executed.

    In files saved without the output projection, such as facebook/bart-large, names lack the prefix "model.".
    """
    tensors = _load_files(directory)
    if any(name.startswith("model.") for name in tensors):
        return tensors
    apart = ("lm_head.", "final_logits_bias")
    return {name if name.startswith(apart) else f"model.{name}": tensor for name, tensor in tensors.items()}


def _load_files(directory: Path) -> Mapping[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in _weight_files(directory):
        tensors |= _load_torch(path) if path.suffix == ".bin" else _load_safetensors(path)
    return tensors


def _weight_files(directory: Path) -> list[Path]:
    """The files of the model's weights, without other files that training may have left beside them."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (directory / name).is_file():
            return [directory / name]
        index = directory / f"{name}.index.json"
        if index.is_file():
            places = read_json(index).get("weight_map")
            if not isinstance(places, dict):
                raise CheckpointError(f"{index}: expected weight_map, which names the file of each tensor; found none")
            parts = sorted(set(map(str, places.values())))
            if outside := [part for part in parts if Path(part).name != part]:
                raise CheckpointError(f"{index}: expected names of files beside it, found {outside[0]!r}")
            missing = [part for part in parts if not (directory / part).is_file()]
            if missing:
                raise CheckpointError(f"{index}: names {len(parts)} files, of which {', '.join(missing)} are missing")
            return [directory / part for part in parts]
    raise CheckpointError(f"{directory}: expected model.safetensors or pytorch_model.bin, found neither")


def _load_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: not a readable safetensors file ({error}); fetch the checkpoint again"
        ) from error


def _load_torch(path: Path) -> dict[str, Tensor]:
    import torch

    if torch.__version__ < "2.6":  # older versions can run code even with weights_only (CVE-2025-32434)
        raise CheckpointError(
            f"{path}: needs PyTorch 2.6 or newer; this is {torch.__version__}, which would run code in such files. "
            f"Upgrade PyTorch, or convert the checkpoint to model.safetensors."
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken or hostile file can make the reader raise almost anything
        raise CheckpointError(
            f"{path}: cannot be read as plain weights ({error}). knnmt does not load files that hold more than "
            f"weights; "
            "convert the checkpoint to model.safetensors."
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: expected named weights, found {type(content).__name__}")
    return {name: tensor for name, tensor in content.items() if isinstance(tensor, torch.Tensor)}


_TOKENIZER_FILES = ("tokenizer.json", "*.spm", "*.model", "vocab*", "merges.txt", "tokenizer_config.json")


def fingerprint(directory: Path) -> Fingerprint:
    """The identity of a checkpoint, independent of its location."""
    model = _sha256([directory / "config.json", *_weight_files(directory)])
    return Fingerprint(model, tokenizer_digest(directory))


def tokenizer_digest(directory: Path) -> str:
    """The tokenizer's part of it, for which no weights are read."""
    return _sha256(sorted({path for pattern in _TOKENIZER_FILES for path in directory.glob(pattern)}))


def _sha256(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            with open_regular(path, links=True) as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Generation:
    """The generation settings that decoding here reads; a null counts as not set."""

    eos_token_id: int | tuple[int, ...] | None = None
    decoder_start_token_id: int | tuple[int, ...] | None = None
    pad_token_id: int | tuple[int, ...] | None = None
    forced_bos_token_id: int | tuple[int, ...] | None = None
    forced_eos_token_id: int | tuple[int, ...] | None = None
    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    min_length: int | None = None
    min_new_tokens: int | None = None
    bad_words_ids: tuple[tuple[int, ...], ...] | None = None
    suppress_tokens: tuple[int, ...] | None = None

    @classmethod
    def of(cls, directory: Path, content: Mapping[str, Any]) -> _Generation:
        try:
            return as_record(cls, content, others=True)
        except ValueError as error:
            raise CheckpointError(
                f"{directory}: its generation settings (generation_config.json, config.json) cannot be read: {error}"
            ) from error


def special_tokens(directory: Path, config: Mapping[str, Any]) -> SpecialTokens:
    """Ids of the tokens that decoding needs, from the generation settings, or else from `config.json`."""
    asked, older = (_Generation.of(directory, each) for each in (generation_json(directory, config), config))

    def token(name: str) -> int | None:
        value = getattr(asked, name)
        return _single(name, getattr(older, name) if value is None else value, directory)

    end, start = token("eos_token_id"), token("decoder_start_token_id")
    if end is None or start is None:
        missing = "eos_token_id" if end is None else "decoder_start_token_id"
        raise CheckpointError(f"{directory}: {missing} is missing in config.json, but decoding needs it")
    padding = token("pad_token_id")
    return SpecialTokens(end=end, padding=end if padding is None else padding, decoder_start=start)


def generation_json(directory: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`generation_config.json`, or in older checkpoints `config.json`."""
    path = directory / "generation_config.json"
    return read_json(path) if path.is_file() else config


# Generation settings that change the hypotheses, each with the value that has no effect.
_NOT_DONE = {
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "diversity_penalty": 0.0,
    "num_beam_groups": 1,
    "do_sample": False,
    "exponential_decay_length_penalty": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "renormalize_logits": False,
}


def generation_settings(directory: Path, config: Mapping[str, Any], positions: int) -> DecodingConfig:
    """The search settings that the checkpoint asks for; `positions` is the number of positions of the model."""
    asked = generation_json(directory, config)
    end = special_tokens(directory, config).end
    for name, neutral in _NOT_DONE.items():
        value = asked.get(name)
        if value is not None and value != neutral:
            warnings.warn(
                f"{directory}: the checkpoint asks for {name}={shown(value)}, which knnmt does not support",
                IgnoredSettingWarning,
                stacklevel=2,
            )
    known = _Generation.of(directory, asked)
    longest = known.max_new_tokens or (known.max_length or positions) - 1
    sequences = [sequence for sequence in known.bad_words_ids or () if sequence and sequence != (end,)]
    single = [sequence[0] for sequence in sequences if len(sequence) == 1]
    try:
        return DecodingConfig(
            beam=known.num_beams or 1,
            length_penalty=1.0 if known.length_penalty is None else known.length_penalty,
            early_stopping=False if known.early_stopping is None else known.early_stopping,
            max_tokens=min(longest, positions - 1),
            min_tokens=max((known.min_length or 0) - 1, known.min_new_tokens or 0, 0),
            forced_first_token=_single("forced_bos_token_id", known.forced_bos_token_id, directory),
            forced_last_token=_single("forced_eos_token_id", known.forced_eos_token_id, directory),
            suppressed_tokens=tuple(sorted({*single, *(known.suppress_tokens or ())})),
            suppressed_sequences=tuple(sequence for sequence in sequences if len(sequence) > 1),
        )
    except SettingError as error:
        raise CheckpointError(f"{directory}: its generation settings cannot work: {error}") from error


def _single(name: str, value: int | tuple[int, ...] | None, directory: Path) -> int | None:
    if isinstance(value, tuple):
        if len(value) != 1:
            raise CheckpointError(f"{directory}: {name} is {list(value)}; decoding here needs a single token")
        return value[0]
    return value
