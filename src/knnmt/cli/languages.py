"""The options that name languages, and what is meant without them. They are the same wherever a model is loaded.

They apply to the text and to the model: "de" chooses the German side of a TMX file and the model's deu_Latn.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from knnmt.cli.lines import first_lines
from knnmt.cli.memories import MemoriesIn
from knnmt.corpus.options import ReadingConfig
from knnmt.documents.memory_languages import languages_of_memories, model_for_memories
from knnmt.engine.languages import languages_of_model, languages_of_text
from knnmt.engine.model_choice import ModelChoice, choose_model, model_for_texts
from knnmt.engine.shipped import DEFAULT_MODEL, shipped_model, shipped_models
from knnmt.errors import LanguagesRequiredError

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


ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A shipped model, a checkpoint directory, or a Hugging Face name.  [default: the shipped model for the "
        "languages of the memory, the document or the text]",
        show_default=False,
    ),
]


def model_of_memories(
    model: str | None, source: str | None, target: str | None, memories_in: MemoriesIn
) -> tuple[str, tuple[str, str]]:
    """The given model, or else the shipped one for the memories, which is said; and the languages to read."""
    if model is not None:
        return model, languages_of_text(model, source, target)
    reading = memories_in("de", "en")
    choice = model_for_memories(reading.paths, source, target, reading.reading)
    typer.echo(f"model      {choice}")
    return choice.name, (choice.source, choice.target)


def model_of_lines(
    files: list[Path] | None, texts: list[str] | None, source: str | None, target: str | None, plain: bool
) -> ModelChoice:
    """The shipped model for lines of text, by the options or by the language of the first lines, which is said."""
    subject = str(files[0]) if files and len(files) == 1 else "the text"
    if source is not None or target is not None:
        choice = choose_model(source, target, subject, "as the options say")
    else:
        choice = model_for_texts(texts or first_lines(files, plain), subject)
    print(f"knnmt: {choice}", file=sys.stderr)
    return choice


def languages_of_check(
    model: str | None, source: str | None, target: str | None, datastore: Path | None, files: list[Path] | None
) -> tuple[str, str]:
    """The languages of documents to check: the given ones, or else the memory's, the model's or the documents'."""
    if datastore is not None or model is not None:
        return languages_of_request(model, source, target, datastore)
    if source is None and target is None:
        with suppress(LanguagesRequiredError):  # documents in several languages each state their own
            (source, target), _ = languages_of_memories(files or [], ReadingConfig())
    choice = shipped_model(source, target)
    own = shipped_models()[choice or DEFAULT_MODEL]
    return source or own[0], target or own[1]


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
    if model is None:
        return source, target
    own = languages_of_model(model, None, None)
    # A single one is only a default of a multilingual model.
    return (source, target) if None in own else (source or own[0], target or own[1])
