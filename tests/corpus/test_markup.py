from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from knnmt.corpus import markup
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.prolog import Prolog, read_prolog
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.errors import MalformedMemoryError
from support.small_parents import IN_BETWEEN

READER = """
import resource, sys
from pathlib import Path
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
config = ReadingConfig(on_error=sys.argv[1])
for path in sys.argv[2:]:
    units = sum(1 for _ in read_files([Path(path)], config, ReadingReport()))
    print(units, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_large_tmx(path: Path, size: int) -> int:
    """Write units until the file has about that many bytes; returns how many."""
    units = 0
    with path.open("wb") as file:
        file.write(b'<?xml version="1.0"?><tmx version="1.4"><header srclang="de"/><body>\n')
        while file.tell() < size:
            block = "".join(
                f'<tu tuid="satz-{number}"><prop type="x-bereich">Lager</prop>\n'
                f'<tuv xml:lang="de"><seg>Regal {number} steht <ph>{{1}}</ph> in der großen Halle.</seg></tuv>\n'
                f'<tuv xml:lang="en"><seg>Shelf {number} stands in the large hall.</seg></tuv></tu>\n'
                for number in range(units, units + 1000)
            )
            file.write(block.encode())
            units += 1000
        file.write(b"</body></tmx>\n")
    return units


def measure_memory(place: Path, sizes: Sequence[int], on_error: str) -> list[float]:
    """The megabytes that reading took at most after each of some files of these sizes."""
    paths = [place / f"{size}.tmx" for size in sizes]
    try:
        units = [write_large_tmx(*each) for each in zip(paths, sizes, strict=True)]
        command = [sys.executable, "-c", IN_BETWEEN, READER, on_error, *map(str, paths)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
    pairs, kilobytes = zip(*(map(int, line.split()) for line in said), strict=True)
    assert list(pairs) == units
    return [each / 1024 for each in kilobytes]


@pytest.mark.parametrize("on_error", ["stop", pytest.param("skip", marks=pytest.mark.soak)])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, on_error: str) -> None:
    small, large = measure_memory(tmp_path, [100_000, 5_000_000], on_error)
    assert large < small + 2  # the pairs alone would take 8


@pytest.mark.soak
def test_two_gigabytes_fit_into_two_hundred_megabytes(tmp_path: Path) -> None:
    (megabytes,) = measure_memory(tmp_path, [2_000_000_000], "stop")
    assert megabytes < 200


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"<a:tmx>", Prolog("tmx", reached=True)),
        (b"<!-- weit", Prolog()),
        (b"<!DOCTYPE tmx SYSTEM 'x.dtd'", Prolog()),
        (b"<!DOCTYPE tmx SYSTEM 'x.dtd'>", Prolog("tmx")),
        (b"<!DOCTYPE tmx SYSTEM 'x.dtd'><tmx version='1.4'>", Prolog("tmx", reached=True)),
        (b"<!DOCTYPE tmx [<!ENTITY e 'f'>", Prolog("tmx", entity="e")),
        (b"<!DOCTYPE tmx SYSTEM 'x.dtd' [%p; <!ENTITY e 'f'>]>", Prolog("tmx", entity="p")),
        (b"", Prolog()),
    ],
)
def test_the_prolog_is_read_without_expanding_anything(head: bytes, expected: Prolog) -> None:
    assert read_prolog(head) == expected


def test_entities_that_the_first_look_missed_are_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup, "read_prolog", lambda _: Prolog("tmx", reached=True))
    path = tmp_path / "a.tmx"
    path.write_text(
        '<!DOCTYPE tmx [<!ENTITY lachen "haha">]><tmx><header srclang="de"/><body><tu><tuv xml:lang="de">'
        '<seg>&lachen;</seg></tuv><tuv xml:lang="en"><seg>x</seg></tuv></tu></body></tmx>'
    )
    with pytest.raises(MalformedMemoryError, match=r"a\.tmx: declares the entity 'lachen' in its DOCTYPE"):
        list(read_files([path], ReadingConfig(), ReadingReport()))
