"""The models inside the package. This module imports nothing heavy, so a listing is instant."""

from __future__ import annotations

from pathlib import Path

MODELS_DIRECTORY = Path(__file__).parent.parent / "models"
DEFAULT_MODEL = "de-en"


def shipped_models() -> list[str]:
    """Names of the models that came with the package."""
    return sorted(path.parent.name for path in MODELS_DIRECTORY.glob("*/config.json"))
