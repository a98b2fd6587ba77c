"""The options that name languages, and what is meant without them. They are the same wherever a model is loaded.

They apply to the text and to the model: "de" chooses the German side of a TMX file and the model's deu_Latn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from knnmt.engine.languages import languages_of_model, languages_of_text
from knnmt.engine.shipped import DEFAULT_MODEL

SourceLanguage = Annotated[
    str | None,
    typer.Option(
        "--source-lang",
        metavar="TAG",
        help="Language to translate from: a tag (de, pt-BR) or the model's own code; multilingual models need it.  "
        "[default: the model's]",
        show_default=False,
    ),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(
        "--target-lang", metavar="TAG", help="Language to translate to.  [default: the model's]", show_default=False
    ),
]


def languages_of_request(
    model: str | None, source: str | None, target: str | None, datastore: Path | None
) -> tuple[str, str]:
    """The given languages, or else the memory's, or else the model's."""
    if datastore is not None:
        from knnmt.datastore.store import Datastore

        manifest = Datastore.open(datastore).manifest
        return source or manifest.source_language, target or manifest.target_language
    return languages_of_text(model or DEFAULT_MODEL, source, target)


def languages_if_known(
    model: str | None, source: str | None, target: str | None, datastore: Path | None
) -> tuple[str | None, str | None]:
    """The given languages, or else the memory's, or else the model's if it has two; None if documents have to state
    them.
    """
    if datastore is not None:
        return languages_of_request(model, source, target, datastore)
    own = languages_of_model(model or DEFAULT_MODEL, None, None)
    # A single one is only a default of a multilingual model.
    return (source, target) if None in own else (source or own[0], target or own[1])
