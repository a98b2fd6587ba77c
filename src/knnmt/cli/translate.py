"""`knnmt translate`: its options, and which of them go together. `lines.py` and `documents.py` do the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from knnmt.cli.check import check_documents, require_check
from knnmt.cli.documents import Jobs, are_documents, refuse_options_of_lines, translate_documents
from knnmt.cli.languages import (
    SourceLanguage,
    TargetLanguage,
    languages_if_known,
    languages_of_check,
    languages_of_request,
    model_of_lines,
)
from knnmt.cli.lines import check_input, translate_lines
from knnmt.cli.options import Device, Dtype, Threads
from knnmt.cli.output import Columns
from knnmt.cli.panels import DECODING, RESEARCH
from knnmt.cli.review import review_output
from knnmt.cli.setting_options import options_not_for, options_of, takes_settings
from knnmt.cli.start import load_translator
from knnmt.corpus.glossary_files import read_glossary
from knnmt.errors import SettingError
from knnmt.translator.settings import TranslationSettings


@takes_settings("texts", "documents")
def translate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILES]...",
            help="Text files, one segment per line; or documents (PO, XLIFF and so on) and directories of them. "
            "Documents keep everything that is not translated. Without FILES, standard input is read.",
            show_default=False,
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", "-t", help="Translate this text instead of FILES; can be repeated.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A shipped model, a checkpoint directory, or a Hugging Face name.  [default: the model that the "
            "store was built with; without a store the shipped model for the languages of the document or text]",
            show_default=False,
        ),
    ] = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    datastore: Annotated[
        Path | None,
        typer.Option("--datastore", "-d", help="Translate like this memory (see knnmt adapt).", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of standard output.", show_default=False)
    ] = None,
    output_directory: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            help="Write every document into this directory, under its own name; a source language at its end becomes "
            "the target language (film.de.srt, film.en.srt).",
            show_default=False,
        ),
    ] = None,
    retranslate: Annotated[
        bool,
        typer.Option(
            "--retranslate", help="In documents, also translate units that are marked as fuzzy or for review."
        ),
    ] = False,
    ignore_stated_languages: Annotated[
        bool,
        typer.Option(
            "--ignore-stated-languages",
            help="Translate documents from the source to the target language of the model (or of --source-lang and "
            "--target-lang), whatever languages they state. Their statements stay as they are.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Translate nothing, and report errors in the translations of documents: placeholders, tags, "
            "numbers, length, form and missing translations; with --glossary also terms, with --datastore also "
            "names. Give documents of one language in pairs (source, target). With --jsonl, each finding is a "
            "JSON object.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="With --check: also write a page for a browser.", show_default=False),
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Print the score and a tab before each translation.")
    ] = False,
    review: Annotated[
        bool,
        typer.Option(
            "--review",
            help="Print before each translation, separated by tabs: its kind (exact match, repaired match, with "
            "memory, model alone), the match score, the percentage of the source that the memory's segments "
            "cover (if search is by segment), and the percentage of the translation that is likely to need no "
            "change (if the store was tuned). With documents, which then need --output or --output-dir: print a row "
            "for each unit, those to look at first above, with these columns and the warnings, document, unit, source "
            "and text; and write into the document where each translation came from.",
        ),
    ] = False,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl",
            help="Print a JSON object for each line: source, text, kind, score, tokens, and whatever else was "
            "requested. With documents, print one for each unit, in the order of --review.",
        ),
    ] = False,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    *,
    settings: TranslationSettings,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Search every key, even if the store has an index.", rich_help_panel=RESEARCH),
    ] = False,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Treat every line as text, even in a document (XLIFF, PO, HTML and so on)."),
    ] = False,
    glossary: Annotated[
        Path | None,
        typer.Option(
            "--glossary",
            help="Terms that translations must contain: TSV or CSV with a term and its translation, or TBX. "
            "Messages on standard error name terms that are missing or contradict each other.",
            show_default=False,
        ),
    ] = None,
    timings: Annotated[
        bool, typer.Option("--timings", help="Print at the end where the time went.", rich_help_panel=DECODING)
    ] = False,
) -> None:
    """Translate lines of text, or documents.

    Reads FILES, or standard input, and writes one line for each line that it reads, in the same order. With --n-best
    above 1, each translation has its own line: the number of the input line, a tab, the text. Empty lines stay empty.
    If no translation is found for a line, the line stays empty, a message names it, and the exit status is 1.
    Placeholders (%s, {0}), tags and numbers come out once each; a message names lines whose translation became worse
    because of that.

    Documents are recognised by their content, then by their name. Units without a translation are translated and marked
    for review, in the way of the format. Everything else stays as it is. A unit that fails stays untranslated, a
    message names it, and the exit status is 1. If interrupted, rerun the command; it resumes. Documents of other
    formats (tables, RTF and so on) fail with an error, because their mark-up would be translated like text.

    Examples:

        echo "Das Wetter ist heute schön." | knnmt translate

        knnmt translate --text "Das Wetter ist heute schön."

        knnmt translate handbuch.de.txt --output handbuch.en.txt

        knnmt translate --n-best 3 --scores fragen.txt

        knnmt translate -d projekt.store handbuch.de.txt

        knnmt translate --glossary begriffe.tsv handbuch.de.txt

        knnmt translate -d projekt.store app.po -o app.en.po

        knnmt translate -d projekt.store katalog/ --output-dir fertig/

        knnmt translate --check app.en.po --html befund.html
    """
    complete: Any = settings.resolved()
    if complete.n_best > complete.beam:
        raise SettingError(f"--n-best {complete.n_best} needs a beam at least as large: add --beam {complete.n_best}")
    if (settings.evidence or settings.match) and not (jsonl and datastore):
        raise SettingError("--evidence and --match need --jsonl and --datastore: add both")
    unused = [*options_of(settings, "retrieval", "memory"), *["--exact"] * exact]
    if datastore is None and unused:
        raise SettingError(f"{', '.join(unused)}: only used with a memory; name it with --datastore STORE")
    settings.matching  # noqa: B018 - raises errors before a model is loaded
    _require_protection(settings)
    if check or html is not None:
        require_check(check, html)
        between = languages_of_check(model, source_language, target_language, datastore, files)
        terms = read_glossary(glossary, *between) if glossary is not None else None
        check_documents(files, between, datastore, terms, jsonl, html, complete.placeholders)
        return
    if are_documents(files, output_directory, plain):
        of_lines = [*["--scores"] * scores, *["--text"] * bool(texts)]
        refuse_options_of_lines([*options_not_for(settings, "documents"), *of_lines])
        rows = review_output(review, jsonl, output is not None or output_directory is not None)
        translate_documents(
            Jobs.of(files or [], output, output_directory),
            languages_if_known(model, source_language, target_language, datastore),
            (source_language, target_language),
            model is None and datastore is None,
            datastore,
            lambda chosen, languages: load_translator(
                chosen or model, languages, device, dtype, threads, datastore, exact, settings
            ),
            glossary,
            retranslate,
            timings,
            rows,
            ignore_stated_languages,
        )
        return
    for name, is_given in {"--retranslate": retranslate, "--ignore-stated-languages": ignore_stated_languages}.items():
        if is_given:
            raise SettingError(f"{name} is for documents: leave it out, or name a document")
    check_input(files, texts, output)
    if model is None and datastore is None:
        choice = model_of_lines(files, texts, source_language, target_language, plain)
        model, source_language, target_language = choice.name, choice.source, choice.target
    terms = None
    if glossary is not None:
        terms = read_glossary(glossary, *languages_of_request(model, source_language, target_language, datastore))
    languages = (source_language, target_language)
    translate_lines(
        files,
        texts,
        output,
        plain,
        lambda: load_translator(model, languages, device, dtype, threads, datastore, exact, settings),
        terms,
        datastore,
        Columns(scores, review, complete.n_best),
        jsonl,
        timings,
    )


def _require_protection(settings: TranslationSettings) -> None:
    """Raise an error for settings that say what `--protect` keeps, with `--no-protect`."""
    if not settings.protect and settings.protect is not None:
        for option in options_of(settings):
            if option in ("--tags", "--placeholder"):
                raise SettingError(f"{option} says what --protect keeps: leave --no-protect out")
