"""Settings for reading translation memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from knnmt.config import check
from knnmt.corpus.languages import is_tag, matches, normalise

FORMATS = ("tsv", "csv", "text", "tmx", "xliff", "po")


@dataclass(frozen=True, slots=True)
class ReadingConfig:
    """Which language pair to read from memories, and how to treat everything that is not plain text.

    `format` overrides the detection by content and name. `inline` decides whether the text of inline codes (a tag or
    placeholder of the original document) is dropped or kept. `on_error` decides whether a malformed unit stops the
    reading or is counted and left out. `unfinished` also takes XLIFF segments that are not marked as translated, and
    fuzzy PO entries. `catalog_language` is the language of the translations in a PO file that does not state it.
    Columns of TSV and CSV count from 1; `origin_column` has the origin of a pair, which `write_tsv` writes into column
    3. The separator of CSV is detected from the first line, unless `delimiter` gives it. `max_bytes` is the largest
    size of an unpacked file; None for any.
    """

    source_language: str = "de"
    target_language: str = "en"
    format: str | None = None
    inline: Literal["drop", "keep"] = "drop"
    on_error: Literal["stop", "skip"] = "stop"
    unfinished: bool = False
    catalog_language: str | None = None
    source_column: int = 1
    target_column: int = 2
    origin_column: int | None = None
    header: bool = False
    delimiter: str | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("source_language", "target_language", "catalog_language"):
            tag = getattr(self, name)
            check(
                tag is None or is_tag(tag),
                f"{name} must be a language tag such as 'de' or 'de-AT', got {tag!r}",
            )
        check(
            normalise(self.source_language) != normalise(self.target_language),
            f"source_language and target_language must differ, both are {self.source_language!r}",
        )
        check(
            self.catalog_language is None or any(matches(tag, self.catalog_language) for tag in self.languages),
            f"catalog_language must be one of the asked languages {self.source_language!r} and "
            f"{self.target_language!r}, got {self.catalog_language!r}",
        )
        check(
            self.format is None or self.format in FORMATS,
            f"format must be one of {', '.join(FORMATS)}, got {self.format!r}",
        )
        for name, choices in (("inline", ("drop", "keep")), ("on_error", ("stop", "skip"))):
            check(getattr(self, name) in choices, f"{name} must be one of {choices}, got {getattr(self, name)!r}")
        self._check_columns()

    def _check_columns(self) -> None:
        columns = [self.source_column, self.target_column]
        if self.origin_column is not None:
            columns.append(self.origin_column)
        check(min(columns) >= 1, f"columns count from 1, got {min(columns)}")
        check(
            len(set(columns)) == len(columns),
            f"source, target and origin must come from different columns, got {columns}",
        )
        check(
            self.delimiter is None or (len(self.delimiter) == 1 and self.delimiter not in '"\r\n'),
            f"delimiter must be one character other than a quote or line end, got {self.delimiter!r}",
        )

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source_language, self.target_language

    @property
    def last_column(self) -> int:
        """The number of columns that a line must have."""
        return max(self.source_column, self.target_column, self.origin_column or 0)
