"""One case of a fuzzer: an input changed by chance, and all that is done with it."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors import SafetensorError

from fuzzing.mutations import change_arrays, change_bytes, change_json, change_markup
from fuzzing.samples import DOCUMENTS, MEMORIES, PACKERS, PARTNER, pairs
from knnmt.adapting.verification import problems_beside
from knnmt.cli.look import inspect
from knnmt.corpus.lines import read_lines
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.datastore.manifest import checksum
from knnmt.datastore.store import Datastore, matching
from knnmt.documents.checking import check_document
from knnmt.documents.opening import open_document
from knnmt.errors import KnnmtError
from knnmt.index.saved import check_saved, update_index
from knnmt.index.store_index import StoreIndex
from knnmt.translator.explanation import explain
from knnmt.translator.translator import Translator
from support.signed_networks import rewrite_network

STORE, DOCUMENT = "store", "document"
_SENTENCES = ["Satz 3 ja ja ja", "Satz 7"]


def make_case(chance: Random, place: Path, stores: list[Path]) -> None:
    """Put a changed store, a changed memory or a changed document into an empty directory."""
    if stores and chance.random() < 0.5:
        _make_store(chance, place / STORE, chance.choice(stores))
    elif chance.random() < 0.5:
        _make_memory(chance, place)
    else:
        name, content = chance.choice(list(DOCUMENTS.items()))
        change = change_bytes if name.endswith(".docx") else chance.choice((change_bytes, change_markup, change_markup))
        (place / f"{DOCUMENT}{Path(name).suffix}").write_bytes(change(chance, content))


def _make_memory(chance: Random, place: Path) -> None:
    name, text = chance.choice(list(MEMORIES.items()))
    content = chance.choice((change_bytes, change_markup, change_markup))(chance, text.encode())
    if chance.random() < 0.2:
        ending, pack = chance.choice(list(PACKERS.items()))
        name, content = name + ending, pack(content)
        if chance.random() < 0.5:
            content = change_bytes(chance, content)
    if chance.random() < 0.1:
        name = chance.choice(list(MEMORIES))  # a name that says another format
    (place / name).write_bytes(content)
    if name.startswith("a.de"):
        (place / "b.en").write_text(PARTNER, encoding="utf-8")


def _make_store(chance: Random, place: Path, sound: Path) -> None:
    shutil.copytree(sound, place)
    files = sorted(path for path in place.rglob("*") if path.is_file() and path.name != "lock")
    for path in chance.sample(files, chance.choice((1, 1, 1, 2))):
        content = path.read_bytes()
        if path.suffix == ".json" and chance.random() < 0.85:
            path.write_text(json.dumps(change_json(chance, json.loads(content))), encoding="utf-8")
        elif path.suffix == ".safetensors" and chance.random() < 0.85:
            path.write_bytes(change_arrays(chance, content))
        else:
            path.write_bytes(change_bytes(chance, content))
        if chance.random() < 0.85:
            _acknowledge(place, path)


def _acknowledge(store: Path, changed: Path) -> None:
    """Let every record say of a file what is there now, with checksums that fit."""
    if changed.suffix == ".safetensors" and changed.parent == store:  # a gate, which has its checksum within
        with suppress(SafetensorError, LookupError, ValueError, RuntimeError):
            rewrite_network(changed, lambda *_: None)
    content = changed.read_bytes()
    says = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    for path in (store / "manifest.json", store / "indexes" / "index.json", store / "settings.json"):
        try:
            record = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            for owner in _objects(record):
                if owner.get("file") == changed.name:
                    owner |= says
            if record.pop("checksum", None) is not None:
                record["checksum"] = checksum(record)
            path.write_text(json.dumps(record), encoding="utf-8")


def _objects(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, dict):
        yield content
        content = list(content.values())
    if isinstance(content, list):
        for each in content:
            yield from _objects(each)


def use_case(place: Path, translator: Translator | None) -> None:
    """Do with a case all that can be done; errors of our own are what should come, any other is raised."""
    if (place / STORE).exists():
        assert translator is not None
        _use_store(place / STORE, translator)
    elif found := list(place.glob(f"{DOCUMENT}.*")):
        _attempt(lambda: _use_document(found[0]))
    else:
        _use_memory(place)


def _use_document(path: Path) -> None:
    document = open_document(path)
    assert document.with_targets({}).data == path.read_bytes()
    again = path.with_name(f"again{path.suffix}")
    targets = {unit.id: unit.source for unit in document.units if unit.translatable}
    again.write_bytes(document.with_targets(targets).data)
    assert len(open_document(again).units) <= len(document.units)
    check_document(document, path.name)


def _attempt(use: Callable[[], object]) -> None:
    try:
        use()
    except KnnmtError as error:
        str(error).encode(errors="backslashreplace")  # as standard error does it


def _use_memory(place: Path) -> None:
    paths = sorted(place.iterdir())
    for on_error in ("stop", "skip"):
        for inline in ("drop", "keep"):
            config = ReadingConfig(
                on_error=on_error,
                inline=inline,
                unfinished=inline == "keep",
            )
            _attempt(lambda config=config: _read(paths, config))  # type: ignore[misc]
    _attempt(lambda: list(read_lines(paths[0])))


def _read(paths: list[Path], config: ReadingConfig) -> None:
    report = ReadingReport()
    for pair in read_files(paths, config, report):
        f"{pair.source}{pair.target}{pair.origin}".encode()


def _use_store(store: Path, translator: Translator) -> None:
    def opened() -> Datastore:
        return Datastore.open(store)

    def shown() -> None:
        with redirect_stdout(io.StringIO()):
            inspect(store)

    def changed() -> None:
        there = opened()
        there.add(pairs(2), translator.engine)
        there.remove(matching(origin="f#1"))
        there.compact()

    def translated(**settings: Any) -> None:
        translator.translate(_SENTENCES, datastore=store, max_tokens=8, **settings)

    for use in (
        lambda: list(opened().verify()),
        lambda: check_saved(opened()),
        lambda: list(problems_beside(opened(), [])),
        shown,
        lambda: [opened().entry(number) for number in range(0, opened().entries, 97)],
        lambda: opened().export(store.with_name("exported.tmx")),
        lambda: StoreIndex(opened()).search(torch.zeros(3, opened().manifest.dim), 4),
        translated,
        lambda: translated(fast=2),
        lambda: translated(segments=2),
        lambda: translated(search="segments"),
        lambda: translated(gate=0.3),
        lambda: translated(profile="c"),
        lambda: list(explain(translator, _SENTENCES[:1], datastore=store)),
        lambda: update_index(opened()),
        changed,
    ):
        _attempt(use)
