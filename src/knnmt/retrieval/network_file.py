"""A small network beside a store: one safetensors file with its weights, a record of its training, and a checksum.

Such a file is not trusted: readers check that the weights fit the network.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from knnmt.config import RetrievalConfig, check
from knnmt.datastore.manifest import Manifest
from knnmt.datastore.publication import clear_scratch, publish_file
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError, DatastoreMismatchError, DatastoreVersionError, SettingError
from knnmt.records import as_record, parse_json, shown
from knnmt.regular_files import read_regular

UNREADABLE = (OSError, SafetensorError, LookupError, ValueError, RuntimeError)
"""The errors that may come from reading a damaged file or from making a network of its tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """What a network was trained for, and the result of its training.

    k, temperature, use_counts: of the search whose neighbours it weighs
    model, tokenizer: fingerprints; dim, transforms: of the store's keys
    pairs: number of training pairs
    losses: on the validation part, in nats per token, by name
    """

    k: int
    temperature: float
    use_counts: bool
    model: str
    tokenizer: str
    dim: int
    transforms: tuple[str, ...]
    seed: int
    pairs: int
    losses: dict[str, float]

    def __post_init__(self) -> None:
        RetrievalConfig(self.k, 0.5, self.temperature)  # this checks k and T
        check(min(self.dim, self.pairs) >= 0, f"dim and pairs cannot be negative, got {self.dim} and {self.pairs}")

    @classmethod
    def new(cls, manifest: Manifest, retrieval: RetrievalConfig, **fields: Any) -> Self:
        """The record of a training that begins: for the keys of a store, and the results of this retrieval."""
        return cls(
            k=retrieval.k,
            temperature=retrieval.temperature,
            use_counts=retrieval.use_counts,
            model=manifest.model,
            tokenizer=manifest.tokenizer,
            dim=manifest.dim,
            transforms=manifest.transforms,
            losses={},
            **fields,
        )

    def applied_to(self, config: RetrievalConfig, given: Collection[str], what: str, advice: str) -> RetrievalConfig:
        """Settings with the k, T and use of counts that the network was trained for.

        Args:
            given: the settings that a call names, which must be equal.
            what: the network, for messages.
            advice: what to do if they are not.
        """
        for name in ("k", "temperature", "use_counts"):
            trained, requested = getattr(self, name), getattr(config, name)
            check(
                name not in given or math.isclose(trained, requested, rel_tol=1e-3),
                f"the store's {what} was trained for {name} {trained:.5g}, but the call asks for {requested:.5g}: "
                f"leave this setting out, {advice}",
            )
        return replace(config, k=self.k, temperature=self.temperature, use_counts=self.use_counts)


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """The place of a network.

    kind: what it is, for its metadata and for messages, such as "gate"
    version: of the format that is written and read
    missing: the message if there is no file; advice: how to make it again
    """

    path: Path
    kind: str
    version: int
    missing: str
    advice: str

    def write(self, record: TrainingRecord, network: nn.Module) -> None:
        """Save a network and its record. They replace an earlier file in one step."""
        text, tensors = self._saved(record, network)
        content = save(tensors, {self.kind: text, "sha256": content_digest(text, tensors)})
        clear_scratch(self.path)
        publish_file(self.path, lambda file: file.write(content))

    def digest(self, record: TrainingRecord, network: nn.Module) -> str:
        """A digest of the content, whatever the layout of the file."""
        return content_digest(*self._saved(record, network))

    def _saved(self, record: TrainingRecord, network: nn.Module) -> tuple[str, dict[str, Tensor]]:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
        return json.dumps({"version": self.version, **asdict(record)}), tensors

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The record as in the JSON, and finite weights in float32; anything else is refused."""
        try:
            stored = read_regular(self.path)
            tensors = load(stored)
            header = _header(stored)
            said = header[self.kind]
            content = parse_json(said)
            version = content.pop("version") if isinstance(content, dict) else None
            if version != self.version:
                raise DatastoreVersionError(
                    f"{self.path}: written in version {shown(version)} of the format; this knnmt reads version "
                    f"{self.version}. {self.advice}"
                )
            if not all(each.dtype == torch.float32 and bool(each.isfinite().all()) for each in tensors.values()):
                raise ValueError("its weights are not all finite numbers in float32")
            if header.get("sha256") != content_digest(said, tensors):
                raise DatastoreDamagedError(
                    f"{self.path}: its checksum does not fit its content, because something other than knnmt wrote or "
                    f"altered it. {self.advice}"
                )
        except FileNotFoundError:
            raise SettingError(f"{self.missing}. {self.advice}") from None
        except UNREADABLE as error:
            raise self.unreadable(error) from error
        return content, tensors

    def unreadable(self, error: Exception) -> DatastoreDamagedError:
        """The error that says that the file is unreadable."""
        return DatastoreDamagedError(
            f"{self.path}: expected a {self.kind}, but it cannot be read ({error}). {self.advice}"
        )

    def changed(self) -> int:
        """When it was last written, in nanoseconds; 0 if there is none."""
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return 0

    def require_fit(self, record: TrainingRecord, store: Datastore) -> None:
        """Refuse a network that was trained with another model, or for keys of another kind."""
        manifest = store.manifest
        kinds = [
            ("model", record.model[:12], manifest.model[:12]),
            ("tokenizer", record.tokenizer[:12], manifest.tokenizer[:12]),
            ("dimension", record.dim, manifest.dim),
            ("transforms", "+".join(record.transforms) or "none", "+".join(manifest.transforms) or "none"),
        ]
        for name, trained, found in kinds:
            if trained != found:
                raise DatastoreMismatchError(
                    f"{self.path}: was trained for a store with {name} {trained}, but this one has {found}. "
                    f"{self.advice}"
                )


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The metadata of safetensors: texts by name."""

    __metadata__: dict[str, str]


def _header(stored: bytes) -> dict[str, str]:
    header = parse_json(stored[8 : 8 + int.from_bytes(stored[:8], "little")])
    return as_record(_Metadata, header, others=True).__metadata__


def content_digest(record: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of a network and its record, independent of the layout of the file, whose fields have no fixed order."""
    digest = hashlib.sha256(record.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
