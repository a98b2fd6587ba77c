"""Small files that would fill the memory, or take for ever: refused or read in little of both."""

from __future__ import annotations

import gzip
import lzma
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product, repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.detection import detect_format
from knnmt.corpus.languages import match_rank
from knnmt.corpus.lines import read_lines
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.errors import InputError, KnnmtError, MalformedMemoryError
from support.memories import read
from support.small_parents import IN_BETWEEN

MEGABYTE = 1 << 20
READER = """
import resource, sys
from pathlib import Path
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.errors import KnnmtError
for path, on_error in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        report = ReadingReport()
        found = sum(1 for _ in read_files([Path(path)], ReadingConfig(on_error=on_error), report))
        said = f"{found} {sum(report.skipped.values())}"
    except KnnmtError as error:
        said = str(error).replace("\\n", " ")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, said)
"""
START = b'<tmx version="1.4"><header srclang="de"/><body>'
UNIT = b'<tu><tuv xml:lang="de"><seg>a</seg></tuv><tuv xml:lang="en"><seg>b</seg></tuv></tu>'
APART = b"<x>%s%s</x>" % (UNIT, b"<y/>" * 250_000)
FILE = (
    b'<file source-language="%s%06d"><body><trans-unit id="1"><source>a</source><target>b</target></trans-unit>'
    b"</body></file>"
)


def many(piece: bytes, megabytes: int) -> Iterator[bytes]:
    block = piece * (MEGABYTE // len(piece) + 1)
    return repeat(block, megabytes)


def variants() -> Iterator[bytes]:
    yield START + b"<tu>"
    for language in (b"de", b"en"):
        yield (b'<tuv xml:lang="%s"><seg>a</seg></tuv>' % language) * 6000
    yield b"</tu></body></tmx>"


def languages() -> Iterator[bytes]:
    yield b"<xliff>"
    for number in range(3000):
        yield FILE % (b"x" * 100_000, number)
    yield b"</xliff>"


BOMBS: dict[str, tuple[str, Callable[[], Iterator[bytes]], str]] = {
    "a line of TSV": ("a.tsv", lambda: iter([b"a\t", *many(b"x", 150)]), "line 1: expected lines of text, found one"),
    "columns of TSV": ("a.tsv", lambda: iter([b"ab\t" * 5_000_000, b"\n"]), "1 0"),
    "a line of CSV": ("a.csv", lambda: iter([b"a,", *many(b"x", 150)]), "found one of more than 16 MiB"),
    "a record of CSV": (
        "a.csv",
        lambda: many(b'"%b\n",' % (b"x" * 100), 250),
        "expected a CSV record, found",
    ),
    "a line of PO": ("a.po", lambda: iter([b'msgid "', *many(b"x", 150)]), "found one of more than 16 MiB"),
    "an entry of PO": ("a.po", lambda: iter([b'msgid "a"\n', *many(b'"x"\n', 20)]), "found one of more than 256 KiB"),
    "variants of TMX": ("a.tmx", variants, "1 0"),
    "a text of TMX": ("a.tmx", lambda: iter([START, b"<tu>", *many(b"x", 150)]), "without the end of an element"),
    "elements of TMX": (
        "a.tmx",
        lambda: iter([START, b"<tu>", *many(b"<x/>", 150)]),
        "marks without the end of an element",
    ),
    "attributes of TMX": ("a.tmx", lambda: iter([START, b"<tu><x ", *many(b'a="" ', 150)]), "marks without the end"),
    "elements apart": ("a.tmx", lambda: iter([START, *repeat(APART, 16), b"</body></tmx>"]), "16 0"),
    "depth of TMX": ("a.tmx", lambda: iter([START, *many(b"<x>" + UNIT, 5)]), "inside more than 100 elements"),
    "open elements": (
        "a.tmx",
        lambda: iter([START, *(part for _ in range(9) for part in (b'<x a="', *many(b"x", 20), b'">', UNIT))]),
        "found one inside elements with huge attributes",
    ),
    "given attributes": (
        "a.tmx",
        lambda: iter([b'<!DOCTYPE tmx [<!ATTLIST x a CDATA "', b"x" * 50_000, b'">]>', START, *many(b"<x/>", 1)]),
        "found: a DOCTYPE that gives the attribute 'a' a value",
    ),
    "languages of XLIFF": ("a.xlf", languages, "0 3000"),
}


def pack(path: Path, pieces: Iterator[bytes]) -> None:
    """Write an archive of members; pieces that come again and again are compressed once."""
    known: tuple[bytes, bytes] | None = None
    with path.open("wb") as file:
        for piece in pieces:
            if known is None or known[0] is not piece:
                known = piece, gzip.compress(piece, 1)
            file.write(known[1])


# Broken XML is fed to its parser in other pieces.
@pytest.mark.parametrize(
    "bombs",
    [
        [(name, "stop") for name in ("an entry of PO", "depth of TMX")],
        pytest.param(
            [*((name, "stop") for name in BOMBS), ("elements of TMX", "skip"), ("a text of TMX", "skip")],
            marks=pytest.mark.soak,
        ),
    ],
    ids=["some", "all"],
)
def test_a_bomb_in_an_archive_takes_little_memory(tmp_path: Path, bombs: list[tuple[str, str]]) -> None:
    asked = []
    for number, (name, on_error) in enumerate(bombs):
        ending, content, _ = BOMBS[name]
        (tmp_path / str(number)).mkdir()
        path = tmp_path / str(number) / f"{ending}.gz"
        pack(path, content())
        asked += [str(path), on_error]
    command = [sys.executable, "-c", IN_BETWEEN, READER, *asked]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for (name, _), line in zip(bombs, lines, strict=True):
        kilobytes, _, said = line.partition(" ")
        assert BOMBS[name][2] in said, name
        assert int(kilobytes) < 250 * 1024, name


def test_files_of_two_sides_and_plain_lines_have_the_same_limit(tmp_path: Path) -> None:
    paths = [tmp_path / "a.de", tmp_path / "a.en"]
    for path in paths:
        path.write_bytes(b"x" * (17 * MEGABYTE))
    with pytest.raises(InputError, match=r"a\.de, line 1: expected lines of text, found one of more than 16 MiB"):
        list(read_files(paths, ReadingConfig(), ReadingReport()))
    with pytest.raises(InputError, match=r"a\.de, line 1: .*more than 16 MiB"):
        list(read_lines(paths[0]))
    paths[0].write_bytes(b"x" * (16 * MEGABYTE - 1) + b"\ny\n")
    assert [len(line) for line in read_lines(paths[0])] == [16 * MEGABYTE - 1, 1]


@pytest.mark.parametrize("options", [{}, {"format": "tsv"}, {"format": "tmx"}, {"format": "po"}, {"format": "csv"}])
def test_devices_without_end_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(KnnmtError):
        list(read_files([Path("/dev/zero")] * 2, ReadingConfig(**options), ReadingReport()))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="/dev/zero, line 1: expected lines of text"):
        list(read_lines(Path("/dev/zero")))


def test_an_archive_that_needs_much_memory_to_unpack_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.xz"
    usual = lzma.compress(b"a\tb\n", preset=9 | lzma.PRESET_EXTREME)
    path.write_bytes(usual + b"\0" * 70_000 + usual)
    assert len(list(read_files([path], ReadingConfig(), ReadingReport()))) == 2
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3, "depth": 1}]
    compressor = lzma.LZMACompressor(filters=filters)
    path.write_bytes(compressor.compress(b"a\tb\n") + compressor.flush())
    with pytest.raises(InputError, match=r"a\.tsv\.xz: cannot be read to its end: Memory usage limit exceeded"):
        list(read_files([path], ReadingConfig(), ReadingReport()))


@pytest.mark.parametrize("head", [b" " * 65_536, b"\n#" * 32_768, b"# \n" * 20_000 + b"msgid"])
def test_the_format_of_white_space_is_found_at_once(head: bytes) -> None:
    started = time.process_time()  # others may have the processor in between
    detect_format(Path("a"), head)
    assert time.process_time() - started < 2


TAGS = st.sampled_from(["de", "de-AT", "de-CH", "en", "en-US", "d", "fr"])


ASKED = st.sampled_from([("de", "en"), ("de-AT", "de"), ("de", "de-AT"), ("de-AT", "en-US")])


@given(st.lists(TAGS, max_size=5), ASKED)
def test_of_many_variants_the_same_are_taken_as_of_all_couples(
    tmp_path_factory: pytest.TempPathFactory, found: list[str], asked: tuple[str, str]
) -> None:
    units = "".join(f'<tuv xml:lang="{tag}"><seg>{number}</seg></tuv>' for number, tag in enumerate(found))
    content = f'<tmx><header srclang="x"/><body><tu>{units}</tu></body></tmx>'
    path = tmp_path_factory.mktemp("tmx") / "a.tmx"
    pairs, report = read(path, content, source_language=asked[0], target_language=asked[1])
    ranks = [[(match_rank(tag, each), n) for n, each in enumerate(found)] for tag in asked]
    couples = [
        ((source[0] or 0) + (target[0] or 0), source, target)
        for source, target in product(*ranks)
        if source[1] != target[1] and source[0] is not None and target[0] is not None
    ]
    expected = [(str(couple[1][1]), str(couple[2][1])) for couple in sorted(couples)[:1]]
    assert pairs == expected
    assert bool(report.noted) == (len(couples) > 1)


def test_a_file_that_never_ends_a_unit_names_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(MalformedMemoryError, match=r"a\.tmx: expected elements <tu>, found 4,160 KiB and"):
        read(tmp_path / "a.tmx", START + b"<tu>" + b"<x/>" * 1_500_000)
