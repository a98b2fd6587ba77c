"""`knnmt translate`: its options, and which of them go together. `lines.py` and `documents.py` do the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

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
from knnmt.cli.panels import DECODING, MEMORY, RESEARCH
from knnmt.cli.retrieval_options import options_of, takes_retrieval_settings
from knnmt.cli.review import review_output
from knnmt.cli.start import load_translator
from knnmt.config import MatchConfig
from knnmt.corpus.glossary_files import read_glossary
from knnmt.errors import SettingError
from knnmt.protection.placeholder_syntax import checked_patterns
from knnmt.protection.tags import TAGS, Tags
from knnmt.retrieval.settings import RetrievalSettings


@takes_retrieval_settings
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
    beam: Annotated[
        int, typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy search.", rich_help_panel=DECODING)
    ] = 5,
    n_best: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of translations for each line. Above 1, each has its own line: the number of the input "
            "line, a tab, the text.",
            rich_help_panel=DECODING,
        ),
    ] = 1,
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
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="At most this many sentences are decoded together.  [default: 32; 128 on a GPU]",
            show_default=False,
            rich_help_panel=DECODING,
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="At most this many source tokens are decoded together, including padding.",
            show_default=False,
            rich_help_panel=DECODING,
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of lines to read ahead and sort by length. A line is written when it and all earlier lines "
            "are done. Ctrl-C loses at most this many. 1 translates line by line.  [default: 512]",
            show_default=False,
            rich_help_panel=DECODING,
        ),
    ] = None,
    split_sentences: Annotated[
        bool,
        typer.Option(
            help="Translate the sentences of a line one by one and keep the white space between them, unless the "
            "memory holds the line as one segment."
        ),
    ] = True,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help="A value above 0 prefers longer translations.  [default: the checkpoint's]",
            show_default=False,
            rich_help_panel=DECODING,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="A translation of a sentence has at most this many tokens.  [default: the checkpoint's]",
            show_default=False,
            rich_help_panel=DECODING,
        ),
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    *,
    settings: RetrievalSettings,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Search every key, even if the store has an index.", rich_help_panel=RESEARCH),
    ] = False,
    evidence: Annotated[
        bool,
        typer.Option("--evidence", help="With --jsonl: why each token was chosen.", rich_help_panel=MEMORY),
    ] = False,
    match: Annotated[
        bool,
        typer.Option("--match", help="With --jsonl: the memory's closest source segment.", rich_help_panel=MEMORY),
    ] = False,
    exact_matches: Annotated[
        str | None,
        typer.Option(
            metavar="use|prefer|ignore",
            help="How to translate a text that the memory holds. use: take the memory's target. prefer: take it, "
            "unless the memory has several or context or placeholders differ. ignore: translate it like any "
            "other text.  [default: use]",
            rich_help_panel=MEMORY,
            show_default=False,
        ),
    ] = None,
    match_threshold: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help="Take matches with at least this score, in percent, if only numbers and placeholders differ, and "
            "insert those of the text.  [default: 100, exact matches only]",
            rich_help_panel=MEMORY,
            show_default=False,
        ),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Treat every line as text, even in a document (XLIFF, PO, HTML and so on)."),
    ] = False,
    protect: Annotated[
        bool,
        typer.Option(
            "--protect/--no-protect",
            help="Keep placeholders, numbers, tags, accelerators and white space unaltered, each exactly once "
            "(docs/placeholders.md).",
        ),
    ] = True,
    tags: Annotated[
        str,
        typer.Option(
            help="What counts as a tag: xml (everything that looks like one), html or auto (known tags), or none."
        ),
    ] = "auto",
    placeholders: Annotated[
        list[str] | None,
        typer.Option(
            "--placeholder",
            metavar="PATTERN",
            help="Also keep placeholders of this form: literal text in which * stands for 1 to 100 characters other "
            "than white space, such as ~~*~~; can be repeated.",
            show_default=False,
        ),
    ] = None,
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

    Reads FILES, or standard input, and writes one line for each line that it reads, in the same order. Empty lines stay
    empty. If no translation is found for a line, the line stays empty, a message names it, and the exit status is 1.
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
    if n_best > beam:
        raise SettingError(f"--n-best {n_best} needs a beam at least as large: add --beam {n_best}")
    if (evidence or match) and not (jsonl and datastore):
        raise SettingError("--evidence and --match need --jsonl and --datastore: add both")
    matching = {"--exact-matches": exact_matches, "--match-threshold": match_threshold}
    given = [name for name, value in matching.items() if value is not None]
    if datastore is None and (unused := [*options_of(settings), *["--exact"] * exact, *given]):
        raise SettingError(f"{', '.join(unused)}: only used with a memory; name it with --datastore STORE")
    kept = _kept_tags(tags, protect)
    own = checked_patterns(placeholders or ())
    if own and not protect:
        raise SettingError(f"--placeholder {own[0]} says what --protect keeps: leave --no-protect out")
    if check or html is not None:
        require_check(check, html)
        between = languages_of_check(model, source_language, target_language, datastore, files)
        terms = read_glossary(glossary, *between) if glossary is not None else None
        check_documents(files, between, datastore, terms, jsonl, html, own)
        return
    taking = matches_taken_over(exact_matches, match_threshold, datastore)
    if are_documents(files, output_directory, plain):
        line_options = {
            "--n-best": n_best > 1,
            "--scores": scores,
            "--evidence": evidence,
            "--text": bool(texts),
        }
        refuse_options_of_lines(line_options | {"--window": window is not None})
        rows = review_output(review, jsonl, output is not None or output_directory is not None)
        taking["match"] = rows is not None and datastore is not None
        translate_documents(
            Jobs.of(files or [], output, output_directory),
            languages_if_known(model, source_language, target_language, datastore),
            (source_language, target_language),
            model is None and datastore is None,
            datastore,
            lambda chosen, languages: load_translator(
                chosen or model, languages, device, dtype, threads, datastore, exact, settings
            ),
            {"beam": beam, "length_penalty": length_penalty, "max_tokens": max_tokens},
            {
                "batch_size": batch_size,
                "batch_tokens": batch_tokens,
                "split_sentences": split_sentences,
                "placeholders": own,
                **taking,
            },
            kept if protect else "none",
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
        {
            "beam": beam,
            "n_best": n_best,
            "batch_size": batch_size,
            "batch_tokens": batch_tokens,
            "window": window,
            "split_sentences": split_sentences,
            "length_penalty": length_penalty,
            "max_tokens": max_tokens,
            "evidence": evidence,
            "match": match,
            "protect": protect,
            "tags": kept,
            "placeholders": own,
            "glossary": terms,
            **taking,
        },
        datastore,
        Columns(scores, review, n_best),
        jsonl,
        timings,
    )


def _kept_tags(tags: str, protect: bool) -> Tags:
    """What counts as a tag; raise an error if tags are not kept."""
    if tags != "auto" and not protect:
        raise SettingError(f"--tags {tags} says what --protect keeps: leave --no-protect out")
    for known in TAGS:
        if tags == known:
            return known
    raise SettingError(f"--tags must be one of {', '.join(TAGS)}, got {tags!r}")


def matches_taken_over(exact: str | None, threshold: int | None, datastore: Path | None) -> dict[str, Any]:
    """The settings of matches that are taken from the memory. Wrong ones raise an error before a model is loaded."""
    if datastore is None:
        return {}
    taking = MatchConfig(cast("Any", exact or "use"), threshold or 100)
    return {"exact_matches": taking.exact, "match_threshold": taking.threshold}
