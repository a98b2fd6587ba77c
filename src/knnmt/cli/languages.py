"""The options that name languages, the same wherever a model is loaded.

They are one thing for the text and for the model: "de" chooses the German side of a TMX file and the model's deu_Latn.
"""

from __future__ import annotations

from typing import Annotated

import typer

from knnmt.engine.checkpoint import find_checkpoint, read_json, read_tokenizer_config
from knnmt.engine.languages import stated_languages

SourceLanguage = Annotated[
    str | None,
    typer.Option(
        "--source-lang",
        metavar="TAG",
        help="Language to translate from: a tag (de, pt-BR) or the model's own code; models for many languages need "
        "it.  [default: the model's]",
        show_default=False,
    ),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(
        "--target-lang", metavar="TAG", help="Language to translate to.  [default: the model's]", show_default=False
    ),
]


def languages_of_text(model: str, source: str | None, target: str | None) -> tuple[str, str]:
    """Those given, else those that the model states, else German and English."""
    if source is not None and target is not None:
        return source, target
    directory = find_checkpoint(model)
    config = read_json(directory / "config.json")
    stated = stated_languages(directory, config, read_tokenizer_config(directory, config))
    return source or stated.source or "de", target or stated.target or "en"
