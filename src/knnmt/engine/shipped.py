"""The models inside the package."""

from __future__ import annotations

from pathlib import Path

from knnmt.engine.language_codes import same_language

MODELS_DIRECTORY = Path(__file__).parent.parent / "models"
DEFAULT_MODEL = "de-en"


def shipped_models() -> dict[str, tuple[str, str]]:
    """Names of the models that came with the package, and their source and target languages."""
    names = sorted(path.parent.name for path in MODELS_DIRECTORY.glob("*/config.json"))
    return {name: (name.split("-")[0], name.split("-")[1]) for name in names}


def shipped_model(source: str | None, target: str | None) -> str | None:
    """The only shipped model that translates between two languages; None is any language."""
    fitting = [
        name
        for name, own in shipped_models().items()
        if all(tag is None or same_language(tag, side) for tag, side in zip((source, target), own, strict=True))
    ]
    return fitting[0] if len(fitting) == 1 else None
