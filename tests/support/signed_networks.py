"""Files of networks (gates and combiners) with other content than a training writes, and a checksum that fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from knnmt.retrieval.network_file import content_digest

Change = Callable[[dict[str, Tensor], dict[str, Any]], None]


def rewrite_network(path: Path, change: Change, signed: bool = True) -> None:
    """Change the tensors and the record of a network's file, in place; without `signed`, the old checksum stays."""
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    (kind,) = metadata.keys() - {"sha256"}
    record = json.loads(metadata[kind])
    change(tensors, record)
    tensors = {name: each.contiguous() for name, each in tensors.items()}
    metadata[kind] = json.dumps(record)
    if signed:
        metadata["sha256"] = content_digest(metadata[kind], tensors)
    save_file(tensors, path, metadata)
