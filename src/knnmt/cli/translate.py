"""`knnmt translate`: translate lines, or documents (`documents.py`)."""

from __future__ import annotations

import io
import os
import stat
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from knnmt import timing
from knnmt.cli.check import check_documents, require_check
from knnmt.cli.documents import Jobs, are_documents, refuse_options_of_lines, translate_documents
from knnmt.cli.languages import SourceLanguage, TargetLanguage
from knnmt.cli.output import Columns, open_output, require_other_output, write_all
from knnmt.cli.panels import DECODING, MEMORY, RESEARCH
from knnmt.cli.progress import tally
from knnmt.cli.retrieval_options import options_of, takes_retrieval_settings
from knnmt.cli.start import heavy_imports
from knnmt.config import MatchConfig
from knnmt.corpus.glossary_files import read_glossary
from knnmt.corpus.lines import decode_lines, read_lines
from knnmt.corpus.plain_text import require_plain_text
from knnmt.corpus.sides import watched
from knnmt.engine.languages import languages_of_model, languages_of_text
from knnmt.engine.shipped import DEFAULT_MODEL
from knnmt.errors import InputError, KnnmtWarning, NoTranslationWarning, SettingError
from knnmt.protection.tags import TAGS, Tags
from knnmt.retrieval.settings import RetrievalSettings

if TYPE_CHECKING:
    from knnmt.translator.translator import Translator


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
            f"store was built with; without a store {DEFAULT_MODEL}]",
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
            help="Write every document into this directory, under its own name.",
            show_default=False,
        ),
    ] = None,
    retranslate: Annotated[
        bool,
        typer.Option(
            "--retranslate", help="In documents, also translate units that are marked as fuzzy or for review."
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Translate nothing, and report errors in the translations of documents: placeholders, tags, "
            "numbers, length and missing translations; with --glossary also terms, with --datastore also "
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
            "change (if the store was tuned).",
        ),
    ] = False,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl",
            help="Print a JSON object for each line: source, text, kind, score, tokens, and whatever else was "
            "requested.",
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
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda or cuda:N.  [default: cuda if available]",
            show_default=False,
            rich_help_panel=DECODING,
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="float32, bfloat16, float16 (cuda), int8 (cpu), or auto, the fastest on this machine.  [default: "
            "float32 on a CPU, float16 on cuda]",
            show_default=False,
            rich_help_panel=DECODING,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads.  [default: all cores]", show_default=False, rich_help_panel=DECODING),
    ] = None,
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
    between = _languages(model, source_language, target_language, datastore) if glossary or check or html else ("", "")
    terms = read_glossary(glossary, *between) if glossary is not None else None
    if check or html is not None:
        require_check(check, html)
        check_documents(files, between, datastore, terms, jsonl, html)
        return
    taking = matches_taken_over(exact_matches, match_threshold, datastore)
    if are_documents(files, output_directory, plain):
        line_options = {
            "--n-best": n_best > 1,
            "--scores": scores,
            "--review": review,
            "--jsonl": jsonl,
            "--text": bool(texts),
        }
        refuse_options_of_lines(line_options | {"--window": window is not None})
        translate_documents(
            Jobs.of(files or [], output, output_directory),
            _languages_if_known(model, source_language, target_language, datastore),
            (source_language, target_language),
            lambda languages: load(model, languages, device, dtype, threads, datastore, exact, settings),
            {"beam": beam, "length_penalty": length_penalty, "max_tokens": max_tokens},
            {"batch_size": batch_size, "batch_tokens": batch_tokens, "split_sentences": split_sentences, **taking},
            kept if protect else "none",
            terms,
            retranslate,
            timings,
        )
        return
    if retranslate:
        raise SettingError("--retranslate is for documents; lines of text are always translated")
    _check_input(files, texts, output)
    keyboard = not files and not texts and sys.stdin.isatty()
    if keyboard:
        print("Reading lines from the keyboard; Ctrl-D ends.", file=sys.stderr)
    total = len(texts) if texts else count_lines(files, plain)
    warnings.simplefilter("always", KnnmtWarning)
    warnings.simplefilter("ignore", NoTranslationWarning)  # reported with the number of the line

    with timing.record() if timings else nullcontext() as record:
        languages = (source_language, target_language)
        translator = load(model, languages, device, dtype, threads, datastore, exact, settings)
        from knnmt.translator.memories import languages_of

        if timings:
            translator.statistics.hit_distances = Counter()
        # A bar does not fit on a terminal that shows the translations themselves.
        shown = output is not None or not sys.stdout.isatty()
        with open_output(output) as out, tally("translating", total, "lines", shown) as finished:
            lines = texts or lines_of(files, plain)
            language = translator.engine.languages.source or (datastore and languages_of(datastore)[0])
            translations = translator.stream(
                watched(lines, language) if language else lines,
                beam=beam,
                n_best=n_best,
                batch_size=batch_size,
                batch_tokens=batch_tokens,
                window=1 if keyboard else window,
                split_sentences=split_sentences,
                length_penalty=length_penalty,
                max_tokens=max_tokens,
                evidence=evidence,
                match=match,
                **taking,
                progress=finished,
                protect=protect,
                tags=kept,
                glossary=terms,
            )
            columns = Columns(scores, review, n_best)
            failed = write_all(translations, total, out, finished, columns=columns, jsonl=jsonl)
    if record is not None:
        print(record.table(), file=sys.stderr)
        if translator.statistics.rows:
            print(translator.statistics.summary(), file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _languages(model: str | None, source: str | None, target: str | None, datastore: Path | None) -> tuple[str, str]:
    """The given languages, or else the memory's, or else the model's."""
    if datastore is not None:
        from knnmt.datastore.store import Datastore

        manifest = Datastore.open(datastore).manifest
        return source or manifest.source_language, target or manifest.target_language
    return languages_of_text(model or DEFAULT_MODEL, source, target)


def _languages_if_known(
    model: str | None, source: str | None, target: str | None, datastore: Path | None
) -> tuple[str | None, str | None]:
    """The given languages, or else the memory's, or else the model's if it has two; None if documents have to state
    them.
    """
    if datastore is not None:
        return _languages(model, source, target, datastore)
    own = languages_of_model(model or DEFAULT_MODEL, None, None)
    # A single one is only a default of a multilingual model.
    return (source, target) if None in own else (source or own[0], target or own[1])


def _kept_tags(tags: str, protect: bool) -> Tags:
    """What counts as a tag; raise an error if tags are not kept."""
    if tags != "auto" and not protect:
        raise SettingError(f"--tags {tags} says what --protect keeps: leave --no-protect out")
    for known in TAGS:
        if tags == known:
            return known
    raise SettingError(f"--tags must be one of {', '.join(TAGS)}, got {tags!r}")


def _check_input(files: list[Path] | None, texts: list[str] | None, output: Path | None) -> None:
    if texts and files:
        raise SettingError("expected --text or files, found both: give one of them")
    for file in files or []:
        if not file.exists():
            raise InputError(f"{file}: no such file. To translate these words themselves, use --text")
    if not texts:
        require_other_output(output, files)


def matches_taken_over(exact: str | None, threshold: int | None, datastore: Path | None) -> dict[str, Any]:
    """The settings of matches that are taken from the memory. Wrong ones raise an error before a model is loaded."""
    if datastore is None:
        return {}
    taking = MatchConfig(cast("Any", exact or "use"), threshold or 100)
    return {"exact_matches": taking.exact, "match_threshold": taking.threshold}


def load(
    model: str | None,
    languages: tuple[str | None, str | None],
    device: str | None,
    dtype: str | None,
    threads: int | None,
    datastore: Path | None,
    exact: bool,
    settings: RetrievalSettings,
) -> Translator:
    """A translator for a command."""
    with heavy_imports():
        from knnmt.translator.translator import Translator
    return Translator(
        model,
        device=device,
        dtype=dtype,
        threads=threads,
        datastore=datastore,
        exact=exact,
        source_lang=languages[0],
        target_lang=languages[1],
        settings=settings,
    )


def count_lines(files: list[Path] | None, plain: bool) -> int | None:
    """The number of lines, if it can be known. Unreadable input fails before the model is loaded."""
    if not files:
        with suppress(OSError):  # a standard input that is not a file of the system
            if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
                _look_at_standard_input(plain)
        return None
    # Data from a pipe comes once, and cannot be counted first.
    counts = [sum(1 for _ in read_lines(file, plain)) for file in files if file.is_file()]
    return sum(counts) if len(counts) == len(files) else None


def lines_of(files: list[Path] | None, plain: bool = False) -> Iterator[str]:
    """The lines of files, or of standard input if there are none. Documents fail with an error unless `plain`."""
    if not files:
        _look_at_standard_input(plain)
        yield from decode_lines(sys.stdin.buffer, "standard input")
    for file in files or []:
        yield from read_lines(file, plain)


def _look_at_standard_input(plain: bool) -> None:
    if isinstance(sys.stdin.buffer, io.BufferedReader):
        require_plain_text(None, sys.stdin.buffer.peek(), plain)
