from __future__ import annotations

import gzip
import lzma
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import zstandard

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.errors import InputError

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
SIDES = ("Die Brücke ist gesperrt.", "The bridge is closed.")
DOCUMENTS = {
    "tsv": "{0}\t{1}\n",
    "csv": '"{0}","{1}"\n',
    "tmx": '<tmx version="1.4"><header srclang="de"/><body><tu><tuv xml:lang="de"><seg>{0}</seg></tuv>'
    '<tuv xml:lang="en"><seg>{1}</seg></tuv></tu></body></tmx>',
    "xliff": '<xliff version="1.2"><file original="f" source-language="de" target-language="en"><body>'
    '<trans-unit id="1"><source>{0}</source><target state="final">{1}</target></trans-unit></body></file></xliff>',
    "po": 'msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "{0}"\nmsgstr "{1}"\n',
}


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("kind", [*DOCUMENTS, "text"])
@pytest.mark.parametrize("forced", [True, False])
def test_every_format_in_every_compression(tmp_path: Path, kind: str, compression: str, forced: bool) -> None:
    documents = ["{0}\n", "{1}\n"] if kind == "text" else [DOCUMENTS[kind]]
    paths = []
    for number, content in enumerate(documents):
        ending = "" if forced and kind != "text" else f".{kind}"
        paths.append(tmp_path / f"memory{number}{ending}")
        paths[-1].write_bytes(COMPRESS[compression](content.format(*SIDES).encode()))
    report = ReadingReport()
    pairs = list(read_files(paths, ReadingConfig(format=kind if forced else None), report))
    assert [(pair.source, pair.target) for pair in pairs] == [SIDES]
    assert pairs[0].origin.startswith(f"{paths[0]}#")
    assert report == ReadingReport(pairs=1)


def test_files_are_read_in_order_and_only_as_far_as_asked(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("eins\tone\nzwei\ttwo\n")
    (tmp_path / "b.de").write_text("drei\n")
    (tmp_path / "b.en").write_text("three\n")
    (tmp_path / "c.csv").write_text("vier;four\n")
    names = ["a.tsv", "b.de", "b.en", "c.csv", "fehlt.tmx"]
    paths = [tmp_path / name for name in names]
    report = ReadingReport()
    pairs = read_files(paths, ReadingConfig(), report)
    assert [pair.target for pair in islice(pairs, 3)] == ["one", "two", "three"]
    assert report.pairs == 3
    assert next(pairs) == SegmentPair("vier", "four", f"{paths[3]}#1")
    with pytest.raises(InputError, match=r"fehlt\.tmx: no such file"):
        next(pairs)


def test_a_pipe_can_be_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = gzip.compress("".join(f"Satz {n}\tsentence {n}\n" for n in range(40_000)).encode())
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    report = ReadingReport()
    assert sum(1 for _ in read_files([pipe], ReadingConfig(), report)) == 40_000
    writer.join()


def test_columns_need_no_other_package(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("eins\tone\n")
    program = """
import sys
for name in ("lxml", "zstandard"):
    sys.modules[name] = None
from pathlib import Path
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.writing import write_tmx, write_tsv
print([pair.target for pair in read_files([Path(sys.argv[1])], ReadingConfig(), ReadingReport())])
"""
    command = [sys.executable, "-c", program, str(tmp_path / "a.tsv")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['one']\n"
