"""The Python client, over a socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn

import knnmt
from knnmt.errors import InputError, ServiceError, SettingError, StorageError
from knnmt.service import child_process
from knnmt.service.access import new_key
from knnmt.service.answers import SentMemory, ServedDocument
from knnmt.service.client import Client
from knnmt.service.config import Limits, ServiceConfig
from knnmt.service.http.app import make_app
from knnmt.service.scheduling import batching
from knnmt.service.scheduling.waiting_texts import growing
from knnmt.service.service import Service
from knnmt.translator import guarded_search
from knnmt.translator.translator import Translator
from support import ROOT, warm

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


@pytest.fixture
def client(
    tmp_path: Path, tiny_translator: Translator, served_store: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """Of a service with the domain `small` and keys."""
    monkeypatch.setattr(child_process, "start_process", warm.Popen)
    key = new_key(tmp_path / "keys.json", "tests", "admin")
    config = ServiceConfig(
        stores={"small": served_store}, data=tmp_path / "data", keys=tmp_path / "keys.json", limits=Limits(texts=10)
    )
    listening = socket.create_server(("127.0.0.1", 0))
    app = make_app(Service(config, tiny_translator))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield Client(f"http://127.0.0.1:{listening.getsockname()[1]}", key, domain="small")
    server.should_exit = True
    thread.join()
    listening.close()


def test_translating(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_search, "content_faults", lambda *_: [])  # or nonsense is tried again
    one = client.translate("Satz 1 ja", match=True)
    assert (one.text, one.kind, one.complete) == ("line 1 yes", "exact match", True)
    texts = ["Satz 2 ja ja", "etwas ganz anderes", ""]
    several = client.translate(texts, beam=2, n_best=2, evidence=True)
    assert [each.text for each in several][::2] == ["line 2 yes yes", ""]
    assert several[1].tokens
    assert several[1].evidence is not None
    assert several[1].words
    for word in several[1].words:
        assert several[1].text[slice(*word.span)] == word.text
        assert 0 <= word.share <= 1
        assert max(word.tokens) < len(several[1].tokens)
    assert several[0].certainty == 100
    assert len(several[1].alternatives) == 1
    streamed = {each.index: each.text for each in client.stream(texts, beam=2)}
    assert streamed == {number: each.text for number, each in enumerate(several)}
    assert client.translate("etwas", domain="base").kind == "model alone"
    assert "alone" in client.explain(["etwas anderes"])[0]
    matches = client.match(["Satz 1 ja"], limit=2)
    assert (matches[0][0].target, len(matches[0])) == ("line 1 yes", 2)


def test_a_translation_is_heard_while_it_grows(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "growing", partial(growing, seconds=-1.0))  # at every step
    heard: list[tuple[int, str]] = []
    asked: dict[str, Any] = {"beam": 1, "protect": False, "exact_matches": "ignore"}
    texts = ["", "Satz 3 ja ja ja"]
    made = {
        each.index: each.text for each in client.stream(texts, on_partial=lambda *told: heard.append(told), **asked)
    }
    assert made == {number: each.text for number, each in enumerate(client.translate(texts, **asked))}
    assert {index for index, _ in heard} == {1}
    assert all(made[1].startswith(grown) for _, grown in heard)


def test_correcting(client: Client) -> None:
    assert [each.name for each in client.domains()] == ["base", "small"]
    assert client.add([("neu", "one"), ("neuer", "two")]).stored == 2
    assert client.translate("neu").text == "one"
    client.correct([("neu", "three")])
    assert client.translate("neu").text == "three"
    assert client.remove(source="neu").removed == 1


def test_a_memory_is_sent_and_waited_for(client: Client, tmp_path: Path) -> None:
    (tmp_path / "Größe.tsv").write_text("a b\tc d\n", encoding="utf-8")
    heard: list[SentMemory] = []
    made = client.wait(client.send_memory(tmp_path / "Größe.tsv", "own").id, heard.append)
    assert (made.state, made.done, made.name) == ("done", 1, "Größe.tsv")
    assert heard
    assert [each.id for each in client.memories()] == [made.id]
    assert client.cancel(made.id).state == "done"
    assert client.translate("a b", domain="own").text == "c d"
    client.delete("own")
    (tmp_path / "bad.tmx").write_bytes(b"<tmx><body><tu")
    with pytest.raises(ServiceError, match=r"bad\.tmx") as raised:
        client.wait(client.send_memory(tmp_path / "bad.tmx", "own").id)
    assert raised.value.code == "failed"
    with pytest.raises(InputError, match="cannot be read"):
        client.send_memory(tmp_path / "none.tmx", "own")


def test_a_document_is_translated_into_a_file(client: Client, tmp_path: Path) -> None:
    document, output = tmp_path / "Größe.json", tmp_path / "out.json"
    document.write_text('{"a": "Satz 1 ja"}', encoding="utf-8")
    heard: list[ServedDocument] = []
    done = client.translate_document(document, output, glossary={"Wort": "word"}, on_progress=heard.append)
    assert (done.state, done.done, done.of, done.name) == ("done", 1, 1, "Größe.json")
    assert json.loads(output.read_bytes()) == {"a": "line 1 yes"}
    with pytest.raises(ServiceError) as raised:
        client.document(done.id)  # it was taken
    assert raised.value.status == 404
    (tmp_path / "bad.json").write_bytes(b'{"a": ')
    with pytest.raises(ServiceError, match=r"bad\.json") as raised:
        client.translate_document(tmp_path / "bad.json", tmp_path / "none.json")
    assert raised.value.code == "failed"
    assert not (tmp_path / "none.json").exists()
    sent = client.send_document(document, domain="base")
    client.forget_document(sent.id)
    with pytest.raises(ServiceError):
        client.document(sent.id)
    with pytest.raises(InputError, match="cannot be read"):
        client.send_document(tmp_path / "none.po")
    with pytest.raises(StorageError, match="cannot be written"):
        client.translate_document(document, tmp_path / "none" / "out.json")


def test_errors_have_code_message_and_status(client: Client) -> None:
    with pytest.raises(ServiceError, match="there is no domain 'none'") as raised:
        client.translate("a", domain="none")
    assert (raised.value.code, raised.value.status) == ("unknown_domain", 404)
    with pytest.raises(ServiceError, match="at most 10") as raised:
        list(client.stream(["a"] * 11))
    assert raised.value.status == 413
    with pytest.raises(ServiceError) as raised:
        Client(client._parts.geturl(), "wrong").domains()
    assert raised.value.code == "unknown_key"
    assert "wrong" not in repr(Client(client._parts.geturl(), "wrong"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ServiceError, match=r"within 0\.1 seconds"):
            Client(address, timeout_seconds=0.1).domains()
    with pytest.raises(ServiceError, match="cannot reach the service") as raised:
        Client(address).domains()
    assert (raised.value.code, raised.value.status) == ("unreachable", None)
    with pytest.raises(SettingError, match="expected the address of a service"):
        Client("localhost:8500")
    with pytest.raises(SettingError, match="name the domain"):
        Client(address).add([("a", "b")])


def test_the_client_needs_the_standard_library_alone() -> None:
    assert knnmt.Client is Client
    code = (
        "import sys, knnmt; knnmt.Client(); "
        "print({'torch', 'numpy', 'fastapi', 'starlette', 'pydantic', 'prometheus_client'} & set(sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT / "src")}
    )
    assert found.stdout == "set()\n"
