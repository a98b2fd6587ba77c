"""Files of a reproduction: JSON that appears completely or not at all, so a file that exists is done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from knnmt import CacheConfig, Fading, FastConfig, RetrievalConfig, write_output
from knnmt.errors import InputError


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Put a record in its place in one step."""
    text = json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, text)


def read_record(path: Path) -> dict[str, Any] | None:
    """The record at a path; None if there is none."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}). Remove it and rerun the command, which makes it again"
        ) from error
    return content


def settings_of(config: RetrievalConfig) -> dict[str, Any]:
    """Settings in the form of a record."""
    return asdict(config)


def config_of(settings: Mapping[str, Any]) -> RetrievalConfig:
    """The settings in a record."""
    kinds = {"fading": Fading, "cache": CacheConfig, "fast": FastConfig}
    whole = {name: settings[name] and kind(**settings[name]) for name, kind in kinds.items()}
    return RetrievalConfig(**{**settings, **whole})
