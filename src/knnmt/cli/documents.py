"""`knnmt translate` with documents: which files, where they are written, and the messages about each."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import typer

from knnmt.cli.interrupt import ends_with
from knnmt.cli.progress import tally
from knnmt.cli.review import ReviewOutput
from knnmt.cli.streams import noticing_loss, unguarded
from knnmt.corpus.glossary import Glossary
from knnmt.corpus.glossary_files import read_glossary
from knnmt.corpus.visible import visible
from knnmt.documents.direction import Tags as LanguageTags
from knnmt.documents.direction import direction_of, languages_of, model_for_document, told_languages
from knnmt.documents.document import Document
from knnmt.documents.kept import Kept
from knnmt.documents.naming import translated_path
from knnmt.documents.opening import document_format, documents_in, open_document
from knnmt.documents.review import ReviewRow
from knnmt.documents.translating import Outcome, to_translate, translate_document
from knnmt.engine.language_codes import Languages
from knnmt.engine.model_choice import ModelChoice
from knnmt.errors import (
    InputError,
    KnnmtError,
    KnnmtWarning,
    LanguagesRequiredError,
    SettingError,
    TextWarning,
)
from knnmt.output_files import write_output
from knnmt.protection.tags import Tags
from knnmt.timing import stage_times

if TYPE_CHECKING:
    from knnmt.translator.translator import Translator


_MAX_LEAST_SURE = 5  # units that are named because they need review first


def are_documents(files: Sequence[Path] | None, output_directory: Path | None, plain: bool) -> bool:
    """Whether files are documents to be written back. Text files are not, unless each goes to its own file.

    The content decides, then the name. With --plain every line is text.
    """
    if plain or not files:
        if output_directory is not None:
            raise SettingError("--output-dir needs documents: name them, and leave --plain out")
        return False
    if output_directory is not None or any(path.is_dir() for path in files):
        return True
    return any(document_format(path) not in (None, "text") for path in files)


def refuse_options_of_lines(names: Sequence[str]) -> None:
    """Raise an error for options that only apply to lines."""
    if names:
        raise SettingError(f"{', '.join(names)}: only for lines of text, but the files are documents; leave it out")


@dataclass(frozen=True, slots=True)
class Jobs:
    """Documents, each with its output path; None is standard output.

    directory: the one that they are written to
    """

    places: tuple[tuple[Path, Path | None], ...]
    directory: Path | None = None

    @classmethod
    def of(cls, files: Sequence[Path], output: Path | None, directory: Path | None) -> Self:
        """The jobs that the command line describes."""
        if output is not None and directory is not None:
            raise SettingError("expected --output or --output-dir, found both: give one of them")
        for file in files:
            if not file.exists():
                raise InputError(f"{file}: no such file. To translate these words themselves, use --text")
        if directory is None:
            if len(files) > 1 or files[0].is_dir():
                raise SettingError(
                    "several documents need --output-dir DIRECTORY, where each is written under its own name"
                )
            return cls(((files[0], output),))
        if (directory.exists() or directory.is_symlink()) and not directory.is_dir():
            raise SettingError(f"--output-dir {directory}: expected a directory, found a file or a link to nothing")
        places = tuple((path, directory / relative) for path, relative in _below(files))
        taken: dict[Path, Path] = {}
        for path, place in places:
            if place in taken:
                raise SettingError(
                    f"{path} and {taken[place]} would both be written to {place}: translate them separately"
                )
            taken[place] = path
        return cls(places, directory)

    def renamed(self, place: Path | None, document: Document, languages: Languages) -> Path | None:
        """The output path with the target language in names that have the source language."""
        if place is None or self.directory is None or document.bilingual:
            return place
        relative = place.relative_to(self.directory)
        return self.directory / translated_path(relative, languages.source, languages.target)


def _what_translates(translator: Translator, datastore: Path | None) -> tuple[str, str]:
    """What has a direction of its own, and what to use for other languages."""
    if datastore is None:
        return f"the model {Path(translator.engine.name).name}", ""
    return f"the store {datastore}", "use a store of these languages, or leave --datastore out"


def _below(files: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    for file in files:
        if not file.is_dir():
            yield file, Path(file.name)
            continue
        found = list(documents_in(file))
        if not found:
            raise InputError(f"{file}: expected a directory with documents, found none in it")
        yield from ((path, path.relative_to(file)) for path in found)


def translate_documents(
    jobs: Jobs,
    between: LanguageTags,
    asked: LanguageTags,
    chooses_model: bool,
    datastore: Path | None,
    load: Callable[[str | None, LanguageTags], Translator],
    glossary: Path | None,
    retranslate: bool,
    timings: bool,
    review: ReviewOutput | None,
    ignore_stated: bool,
) -> None:
    """Translate every document. End with status 1 if one of several cannot be translated, or a unit failed.

    between: the languages to take from documents that hold any number of them
    asked: the languages that the command line names, which take precedence over what documents state
    chooses_model: whether each document is translated by the shipped model for its languages
    datastore: the store that translates, for errors
    load: loads a translator, for the chosen model if there is one
    glossary: a file of terms
    ignore_stated: ignore the languages that documents state
    review: writes the rows of units; with it, documents get remarks about where their translations came from
    """
    opened, choices = _opened(jobs, between, asked, ignore_stated, chooses_model)
    if not opened:
        raise typer.Exit(1)
    if jobs.directory is None:
        for path, place, document in opened:
            _require_place(path, place, document)
    warnings.simplefilter("always", KnnmtWarning)
    warnings.simplefilter("ignore", TextWarning)  # reported with the unit
    with stage_times() if timings else nullcontext() as record:
        if chooses_model:
            translator_for = _translators_of_choices(load, choices)
        else:
            translator_for = _translators(partial(load, None), asked, [document for _, _, document in opened])
        terms_between = cache(partial(read_glossary, glossary)) if glossary is not None else None
        ready: list[tuple[Path, Path | None, Document, Translator, Glossary | None]] = []
        for path, place, document in opened:
            with _going_on(jobs):
                translator = translator_for(str(path), document)
                languages = _languages(translator)
                line = direction_of(document, str(path), languages, *_what_translates(translator, datastore))
                if choice := choices.get(str(path)):
                    line = f"{path}: {choice}"
                final = jobs.renamed(place, document, languages)
                _require_place(path, final, document)
                _require_new_name(path, place, final, [each for _, each, *_ in ready])
                print(f"knnmt: {visible(line)}", file=sys.stderr)
                terms = terms_between and terms_between(languages.source or "de", languages.target or "en")
                ready.append((path, final, document, translator, terms))
        failed = len(ready) < len(jobs.places)
        with ends_with("rerun the command; it resumes"):
            for path, place, document, translator, terms in ready:
                settings = translator.settings.resolved()
                tags: Tags = (settings.tags if settings.protect else None) or "none"
                kept_terms = terms.terms if terms is not None else ()
                how = f"{translator.signature()}|{settings}|{retranslate}|{kept_terms}"
                match = review is not None and translator.datastore is not None
                read = document.with_targets({}).data
                of = hashlib.sha256(read + how.encode()).hexdigest()
                units = len(to_translate(document, retranslate))
                with Kept(place, of) as kept, tally(f"translating {path.name}", units, "units") as finished:
                    outcome = translate_document(
                        document,
                        partial(translator.translate_marked, glossary=terms, match=match),
                        kept,
                        retranslate,
                        tags,
                        finished,
                        with_remarks=review is not None,
                    )
                    _require_unchanged(path, place, read)
                    _write(outcome.data, place)
                _tell(path, place, document, outcome, has_rows=review is not None)
                if review is not None:
                    review.write(path, outcome.rows)
                failed = failed or bool(outcome.failures)
    if record is not None:
        print(record.table(), file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _opened(
    jobs: Jobs, between: LanguageTags, asked: LanguageTags, ignore_stated: bool, chooses_model: bool
) -> tuple[list[tuple[Path, Path | None, Document]], dict[str, ModelChoice]]:
    """The documents, with the shipped model for each if they choose it, by its path.

    No model is loaded yet, so that unreadable files are reported at once.
    """
    opened: list[tuple[Path, Path | None, Document]] = []
    choices: dict[str, ModelChoice] = {}
    for path, place in jobs.places:
        with _going_on(jobs):
            document = open_document(path, between)
            document.ignores_languages = ignore_stated
            if chooses_model:
                choice = choices[str(path)] = model_for_document(document, path, asked)
                document = open_document(path, (choice.source, choice.target))
                document.ignores_languages = ignore_stated
            opened.append((path, place, document))
    return opened, choices


@contextmanager
def _going_on(jobs: Jobs) -> Iterator[None]:
    """If one of several documents cannot be translated, report it and go on with the others."""
    try:
        yield
    except KnnmtError as error:
        if len(jobs.places) == 1:
            raise
        print(f"knnmt: error: {visible(str(error))}", file=sys.stderr)


def _require_place(path: Path, place: Path | None, document: Document) -> None:
    if place is None:
        return
    if place.is_dir():
        raise SettingError(f"--output {place}: expected the name of a file, found a directory; use --output-dir")
    if not document.bilingual and place.exists() and place.samefile(path):
        raise SettingError(f"{place} is also the input, and its text would be lost: choose another output")


def _require_new_name(path: Path, place: Path | None, final: Path | None, taken: Sequence[Path | None]) -> None:
    """Raise an error if the name in the target language belongs to another document."""
    if final is None or final == place:
        return
    if final in taken or (final.exists() and final.parent.samefile(path.parent)):
        raise SettingError(f"{path}: would be written to {final}, which is another document: translate it separately")


def _require_unchanged(path: Path, place: Path | None, read: bytes) -> None:
    """Raise an error instead of overwriting a file that changed in the meantime."""
    if place is not None and place.is_file() and place.samefile(path) and path.read_bytes() != read:
        raise InputError(
            f"{path}: the file changed while it was translated, so nothing was written. Rerun the command, or "
            f"choose another output"
        )


def _translators(
    load: Callable[[LanguageTags], Translator], asked: LanguageTags, documents: Sequence[Document]
) -> Callable[[str, Document], Translator]:
    """A function that returns the translator for a document and its name: the same for all, unless the model is
    multilingual.

    With a memory, all documents have its languages.
    """
    try:
        translator = load(asked)
        default = translator.engine.languages.source, translator.engine.languages.target
    except LanguagesRequiredError:
        wanted = [languages_of(document, asked) for document in documents]
        translator, default = load(max(wanted, key=lambda tags: sum(tag is not None for tag in tags))), asked
    known = translator.engine.languages
    between = cache(translator.for_languages)  # shares the model

    def translator_for(name: str, document: Document) -> Translator:
        if not known.codes or translator.datastore is not None:
            return translator
        return between(*told_languages(name, languages_of(document, asked), known, default))

    return translator_for


def _translators_of_choices(
    load: Callable[[str | None, LanguageTags], Translator], choices: Mapping[str, ModelChoice]
) -> Callable[[str, Document], Translator]:
    """A function that returns the translator for a document and its name. Each model is loaded once."""
    loaded = cache(lambda model: load(model, (None, None)))
    return lambda name, _document: loaded(choices[name].name)


def _languages(translator: Translator) -> Languages:
    """The languages of the model; if it does not state them, those of the memory."""
    from knnmt.translator.memories import languages_of

    told = translator.engine.languages
    of_store = languages_of(translator.datastore) if translator.datastore is not None else (None, None)
    return Languages(told.source or of_store[0], told.target or of_store[1], told.codes)


def _write(data: bytes, place: Path | None) -> None:
    if place is None:
        stream = unguarded(sys.stdout)
        with noticing_loss():
            stream.flush()
            stream.buffer.write(data)
            stream.buffer.flush()
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_output(place, data)


def _tell(path: Path, place: Path | None, document: Document, outcome: Outcome, has_rows: bool) -> None:
    """Print what was done. has_rows: whether warnings are in the rows of units"""
    to_look_at = ", marked for review" if document.bilingual and outcome.translated else ""
    where = f"; wrote {place}" if place is not None else ""
    done = f"{outcome.translated:,} unit{'s' * (outcome.translated != 1)} translated{to_look_at}, "
    if outcome.copied:
        done += f"{outcome.copied:,} without words copied, "
    done += f"{outcome.kept:,} unchanged"
    if outcome.fuzzy:
        done += f", {outcome.fuzzy:,} of them fuzzy (--retranslate takes those)"
    print(f"knnmt: {path}: {done}{where}", file=sys.stderr)
    if not has_rows:
        _tell_what_to_review(path, outcome.rows)
    for name, reason in outcome.failures.items():
        print(f"knnmt: error: {path}, {name}: {reason}. It stays untranslated", file=sys.stderr)


def _tell_what_to_review(path: Path, rows: Sequence[ReviewRow]) -> None:
    unsure = [row for row in rows if row.provenance.certainty is not None and row.provenance.certainty < 100]
    least_sure = sorted(unsure, key=lambda row: row.provenance.certainty or 0)[:_MAX_LEAST_SURE]
    if least_sure:
        named = ", ".join(f"{visible(row.unit)} ({row.provenance.certainty} %)" for row in least_sure)
        print(f"knnmt: {path}: least certain: {named}", file=sys.stderr)
    for row in rows:
        if row.provenance.warnings:
            messages = "; ".join(each.message for each in row.provenance.warnings)
            print(f"knnmt: warning: {path}, {row.unit}: {messages}", file=sys.stderr)
