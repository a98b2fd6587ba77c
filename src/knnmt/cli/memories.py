"""What `build` and `add` share: the options for reading memories, and the messages about what was read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from knnmt.cli.panels import READING, RESEARCH
from knnmt.corpus.filters import FilterConfig
from knnmt.corpus.options import FORMATS, ReadingConfig
from knnmt.documents.memory_reading import MemoryReading

ForFast = Annotated[
    bool,
    typer.Option(
        "--for-fast",
        help="Also keep the source side and its word alignment, for Fast kNN-MT (translate --fast).",
        rich_help_panel=RESEARCH,
    ),
]
KeepAccelerators = Annotated[
    bool,
    typer.Option(
        "--keep-accelerators",
        help="Treat accelerator marks (&File, _File, ~File) as text, in the memory and in what the store translates.",
        rich_help_panel=READING,
    ),
]


MemoriesIn = Callable[[str, str], MemoryReading]


def memory_reading(
    source_language: str,
    target_language: str,
    *,
    memories: Annotated[
        list[Path],
        typer.Argument(
            metavar="MEMORY...",
            help="TMX, XLIFF, SDLXLIFF, PO, TSV or CSV files, or pairs of text files (source, target); also "
            "compressed with gzip, xz or zstd. Documents as well: Qt catalogs; pairs of documents in one "
            "language each (JSON, Android, HTML and so on); and folders of all these.",
            show_default=False,
        ),
    ],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"One of {', '.join(FORMATS)}.  [default: by content and name]",
            show_default=False,
            rich_help_panel=READING,
        ),
    ] = None,
    source_column: Annotated[
        int, typer.Option(min=1, help="Column of the source in TSV and CSV.", rich_help_panel=READING)
    ] = 1,
    target_column: Annotated[
        int, typer.Option(min=1, help="Column of the target in TSV and CSV.", rich_help_panel=READING)
    ] = 2,
    origin_column: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Column of the origin (3 in files that export writes).",
            show_default=False,
            rich_help_panel=READING,
        ),
    ] = None,
    header: Annotated[
        bool, typer.Option("--header", help="The first line of TSV and CSV names the columns.", rich_help_panel=READING)
    ] = False,
    keep_inline: Annotated[
        bool,
        typer.Option(
            "--keep-inline", help="Keep the text of inline codes instead of dropping it.", rich_help_panel=READING
        ),
    ] = False,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished",
            help="Also take XLIFF units that are not marked as translated, and fuzzy PO entries.",
            rich_help_panel=READING,
        ),
    ] = False,
    catalog_language: Annotated[
        str | None,
        typer.Option(
            "--catalog-lang",
            help="Language of a PO file's translations, if the file does not name it.",
            show_default=False,
            rich_help_panel=READING,
        ),
    ] = None,
    skip_malformed: Annotated[
        bool,
        typer.Option(
            "--skip-malformed",
            help="Skip malformed units and count them, instead of stopping.",
            rich_help_panel=READING,
        ),
    ] = False,
    max_characters: Annotated[
        int | None,
        typer.Option(
            min=1, help="Skip pairs with a side that is longer than this.", show_default=False, rich_help_panel=READING
        ),
    ] = None,
    max_ratio: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Skip pairs whose lengths differ by more than this factor.",
            show_default=False,
            rich_help_panel=READING,
        ),
    ] = None,
    drop_copies: Annotated[
        bool, typer.Option("--drop-copies", help="Skip pairs whose target equals the source.", rich_help_panel=READING)
    ] = False,
    drop_duplicates: Annotated[
        bool, typer.Option("--drop-duplicates", help="Skip pairs that have already occurred.", rich_help_panel=READING)
    ] = False,
) -> MemoryReading:
    """Memories as the options describe them."""
    reading = ReadingConfig(
        source_language=source_language,
        target_language=target_language,
        format=file_format,
        source_column=source_column,
        target_column=target_column,
        origin_column=origin_column,
        header=header,
        inline="keep" if keep_inline else "drop",
        unfinished=unfinished,
        catalog_language=catalog_language,
        on_error="skip" if skip_malformed else "stop",
    )
    filters = FilterConfig(max_characters, max_ratio, copies=not drop_copies, duplicates=not drop_duplicates)
    return MemoryReading(memories, reading, filters)


def reads_memories(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the keyword options of `memory_reading`; it gets them as `memories_in(source, target)`."""
    shared = typed_parameters(memory_reading)[2:]
    own = [parameter for parameter in typed_parameters(command) if parameter.name != "memories_in"]

    def with_memories(**given: Any) -> None:
        options = {parameter.name: given.pop(parameter.name) for parameter in shared}
        command(memories_in=partial(memory_reading, **options), **given)

    required = [each for each in own if each.default is each.empty]
    parameters = [*required, *shared, *(each for each in own if each.default is not each.empty)]
    with_memories.__doc__ = command.__doc__
    with_memories.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    )
    with_memories.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_memories


def typed_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters of a function, with their annotations as types rather than text."""
    hints = get_type_hints(function, include_extras=True)
    return [each.replace(annotation=hints[each.name]) for each in inspect.signature(function).parameters.values()]
