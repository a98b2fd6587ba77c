"""The sound inputs that a fuzzer begins with: memories of every format, and small stores of every make."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import torch

from knnmt.calibration.estimates import Calibration
from knnmt.calibration.index_choice import prepare
from knnmt.compression.pca import reduce
from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.base import Engine, State
from knnmt.index.saved import build_index
from knnmt.retrieval.gate import GateNetwork, GateRecord, TrainedGate
from knnmt.retrieval.profiles import Profile, write_profiles

_INLINE = 'Der <bpt i="1">&lt;b&gt;</bpt>Satz<ept i="1">&lt;/b&gt;</ept> <ph x="2"><sub>innen</sub></ph>'
MEMORIES = {
    "a.tsv": "Guten Tag\tGood day\tmine#1\nZwei\tTwo\tmine#2\n",
    "a.csv": 'Quelle;Ziel\n"Ein ""Wort"";\nmehr";A word\nZwei;Two\n',
    "a.tmx": (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
        '<tmx version="1.4"><header creationtool="own" segtype="sentence" adminlang="en" srclang="de" datatype="x"/>\n'
        f'<body><tu tuid="1"><prop type="x">y</prop><tuv xml:lang="de"><seg>{_INLINE}</seg></tuv>'
        '<tuv xml:lang="en"><seg>The <it pos="begin">b</it>line</seg></tuv></tu>\n'
        '<tu srclang="de-AT"><tuv xml:lang="de-AT"><seg>Zwei</seg></tuv><tuv xml:lang="en-GB"><seg>Two</seg></tuv>'
        '<tuv xml:lang="fr"><seg>Deux</seg></tuv></tu></body></tmx>\n'
    ),
    "a.xlf": (
        '<?xml version="1.0"?><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
        '<file original="f" source-language="de" target-language="en" datatype="plaintext"><header><note>n</note>'
        '</header><body><group id="g"><trans-unit id="1" approved="yes"><source>Ein <g id="1">Wort</g><x id="2"/>'
        '</source><target state="translated">A <g id="1">word</g><x id="2"/></target></trans-unit></group>'
        '<trans-unit id="2" translate="no"><source>a</source><target>b</target><alt-trans><target>c</target>'
        "</alt-trans></trans-unit></body></file></xliff>\n"
    ),
    "b.xlf": (
        '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="de" trgLang="en">\n<file id="f">'
        '<unit id="1"><originalData><data id="d">&lt;b&gt;</data></originalData><segment id="s" state="final">'
        '<source>Ein <pc id="1" dataRefStart="d">Wort</pc><cp hex="0001"/></source><target>A <sc id="2"/>word'
        '<ec startRef="2"/></target></segment><ignorable><source> </source></ignorable></unit></file></xliff>\n'
    ),
    "a.sdlxliff": (
        '<xliff xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0" xmlns="urn:oasis:names:tc:xliff:document:1.2" '
        'version="1.2"><file original="f" source-language="de-DE" target-language="en-US"><header><tag-defs '
        'xmlns="http://sdl.com/FileTypes/SdlXliff/1.0"><tag id="1"><bpt name="b">&lt;b&gt;</bpt></tag></tag-defs>'
        '</header><body><trans-unit id="u"><source>Ein Wort. Zwei.</source><seg-source><mrk mtype="seg" mid="1">Ein '
        '<g id="1">Wort</g>.</mrk> <mrk mtype="seg" mid="2">Zwei.</mrk></seg-source><target><mrk mtype="seg" mid="1">'
        'A <g id="1">word</g>.</mrk> <mrk mtype="seg" mid="2">Two.</mrk></target><sdl:seg-defs><sdl:seg id="1" '
        'conf="Translated"/><sdl:seg id="2" conf="Draft"/></sdl:seg-defs></trans-unit></body></file></xliff>\n'
    ),
    "a.po": (
        'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
        '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n#. note\n#: file.c:3\n#, c-format\nmsgctxt "menu"\n'
        'msgid "&Open %s"\nmsgstr "Ö&ffnen %s"\n\n#, fuzzy\n#| msgid "old"\nmsgid "One"\nmsgid_plural "Many"\n'
        'msgstr[0] "Eins"\nmsgstr[1] "Viele"\n\n#~ msgid "gone"\n#~ msgstr "weg"\n'
    ),
    "a.de": "Guten Tag\nZwei Sätze\n",
}
DOCUMENTS = {
    path.name: path.read_bytes()
    for path in sorted((Path(__file__).parents[1] / "documents" / "golden").iterdir())
    if path.suffix != ".out"
}
PARTNER = "Good day\nTwo sentences\n"


def zstd(content: bytes) -> bytes:
    """Packed by Zstandard."""
    import zstandard

    return zstandard.compress(content)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstd,
}


def pairs(count: int) -> list[SegmentPair]:
    """Short pairs of different lengths."""
    return [SegmentPair(f"Satz {n} {'ja ' * (n % 4)}", f"line {n}{' yes' * (n % 5)}", f"f#{n}") for n in range(count)]


def make_stores(place: Path, engine: Engine[State]) -> list[Path]:
    """A plain store, one for the fast search, one with lists, one of reduced keys; all with settings and a gate."""
    made = []
    for name, config, kind in (
        ("plain", BuildConfig(), "exact"),
        ("fast", BuildConfig(for_fast=True, key_dtype="float32"), "rabitq"),
        ("lists", BuildConfig(), "pq4"),
    ):
        store = Datastore.build(place / name, pairs(60), engine, config)
        store.add([SegmentPair("Noch &eins", "One &more", "g#1")], engine)
        store.remove(matching(origin="f#3"))
        prepare(store, engine, kinds=["exact"])
        build_index(store, kind)
        calibration = Calibration.of(store.path)
        assert calibration is not None
        settings = RetrievalConfig(4, 0.4, calibration.temperature)
        cached = RetrievalConfig(4, 0.4, calibration.temperature, cache=CacheConfig(3.0))
        write_profiles(store.path, {"knn": Profile(settings, "likelihood", 9, 1.5), "c": Profile(cached, "x", 9, None)})
        made.append(store)
    _write_gate(made[0])
    reduced, _ = reduce(made[0], place / "reduced", 8)
    build_index(reduced, "ivfpq")
    return [store.path for store in (*made, reduced)]


def _write_gate(store: Datastore) -> None:
    manifest = store.manifest
    torch.manual_seed(3)
    record = GateRecord(
        features=(),
        k=3,
        temperature=12.5,
        use_counts=True,
        model=manifest.model,
        tokenizer=manifest.tokenizer,
        dim=manifest.dim,
        transforms=(),
        seed=0,
        l1=0.0,
        pairs=9,
        epochs=1,
        losses={},
    )
    TrainedGate(GateNetwork(manifest.dim), record).write(store.path)
