"""A text is translated the same in Python, on the command line and over HTTP, if nothing else is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from knnmt import Datastore, SegmentPair, Translator
from knnmt.engine.transformer import TransformerEngine
from knnmt.service.config import ServiceConfig
from knnmt.service.http.app import make_app
from knnmt.service.service import Service
from support.commands import completed

MEMORY = [
    SegmentPair("Die Datei wurde gelöscht.", "The file is gone.", "m.tsv#1"),
    SegmentPair("Zwei Sätze. In einem Segment.", "Two sentences in one segment.", "m.tsv#2"),
    SegmentPair("Der Vorgang dauert lange.", "This takes its time.", "m.tsv#3"),
    SegmentPair("Öffnen Sie die Datei %s.", "Please open %s.", "m.tsv#4"),
]
HARD = [
    "Die Datei wurde gelöscht.",  # as in the memory
    "Zwei Sätze. In einem Segment.",
    "Das Haus ist groß. Es hat 3 Zimmer.",
    "Öffnen Sie die Datei %s.",
    "Es gibt %d Nachrichten in {0} und ${ziel}.",
    "Der <b>Vorgang</b> dauert <i>lange</i>.",
    "&Speichern unter...",
    "",
    "   ",
    "\ufeffGuten Morgen!",
    "Der Vorgang\u00a0dauert  sehr lange.",
    "Erste Zeile.\n\nZweite Zeile: @@name@@",
]


@pytest.fixture(scope="module")
def memory(engine: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Datastore.build(tmp_path_factory.mktemp("same") / "own.store", MEMORY, engine).path


@pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
@pytest.mark.parametrize("with_memory", [True, False])
def test_python_the_command_line_and_http_agree(memory: Path, with_memory: bool) -> None:
    store = memory if with_memory else None
    python = Translator("de-en", device="cpu", datastore=store).translate(HARD)
    texts: list[str | Path] = [option for text in HARD for option in ("--text", text)]
    named: list[str | Path] = ["-d", memory] if with_memory else []
    command = completed("translate", "--jsonl", "-m", "de-en", "--device", "cpu", *named, *texts)
    assert command.returncode == 0, command.stderr
    lines = [json.loads(line) for line in command.stdout.splitlines()]
    asked = {"texts": HARD, "domain": "own" if with_memory else "base"}
    with Translator("de-en", device="cpu") as loaded:
        service = Service(ServiceConfig(stores={"own": memory}), loaded)
        with TestClient(make_app(service), base_url="http://localhost") as client:
            served = client.post("/v1/translate", json=asked).json()["translations"]
    assert [each["text"] for each in lines] == [each.text for each in python]
    assert [each["text"] for each in served] == [each.text for each in python]
    assert [each.get("kind") for each in lines] == [each.kind for each in python]
    assert [each.get("kind") for each in served] == [each.kind for each in python]
    if with_memory:
        assert [each.kind for each in python[:2]] == ["exact match", "exact match"]
        assert python[0].text == "The file is gone."


@pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
def test_raw_texts_are_decoded_as_they_are(memory: Path) -> None:
    usual = Translator("de-en", device="cpu", datastore=memory)
    raw = usual.translate(HARD, settings="raw")
    assert raw[0].kind == "with memory"
    assert [each.text for each in raw] != [each.text for each in usual.translate(HARD)]
    assert "%d" not in raw[4].text or "${ziel}" not in raw[4].text  # what protection prevents
    assert usual.translate(HARD, split_sentences=False, protect=False, exact_matches="ignore") == raw
    assert Translator("de-en", device="cpu", datastore=memory, settings="raw").translate(HARD) == raw
