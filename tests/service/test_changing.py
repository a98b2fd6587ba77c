"""Domains and segments over HTTP: what is answered lasts, and the next request uses it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from fastapi.testclient import TestClient

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.store import Datastore
from knnmt.index.saved import build_index, lags, read_saved
from knnmt.service import child_process, index_renewal, service
from knnmt.service.domains import Domain, Domains
from knnmt.service.http.answer_shapes import DomainAnswer, DomainsAnswer, RemovedAnswer, SegmentsAnswer, StoredAnswer
from knnmt.service.writing import Writers
from knnmt.translator.translator import Translator
from support import warm
from support.services import StartService

SEGMENTS = "/v1/domains/small/segments"
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


def segments(*pairs: tuple[str, str]) -> dict[str, object]:
    return {"segments": [{"source": source, "target": target} for source, target in pairs]}


def translated(client: TestClient, text: str) -> str:
    found: str = client.post("/v1/translate", json={"texts": [text]}).json()["translations"][0]["text"]
    return found


def targets(client: TestClient, source: str) -> list[str]:
    answer = client.get(SEGMENTS, params={"source": source}).json()
    SegmentsAnswer.model_validate(answer)
    return [each["target"] for each in answer["segments"]]


def test_the_next_request_uses_a_correction(client: TestClient, served_store: Path) -> None:
    before = Datastore.open(served_store).manifest
    answer = client.post(SEGMENTS, json=segments(("neu", "one"), ("neuer", "two")))
    assert answer.status_code == 201
    told = StoredAnswer.model_validate(answer.json())
    assert (told.stored, told.segments) == (2, before.live_sentences + 2)
    assert (translated(client, "neu"), translated(client, "neuer")) == ("one", "two")
    assert client.put(SEGMENTS, json=segments(("neu", "three"))).status_code == 200
    assert translated(client, "neu") == "three"
    assert targets(client, "neu") == ["three"]
    assert client.post(SEGMENTS, json=segments(("neu", "four"))).status_code == 201
    assert targets(client, "neu") == ["four", "three"]
    removed = RemovedAnswer.model_validate(client.delete(SEGMENTS, params={"source": "neu"}).json())
    assert removed.removed == 2
    assert targets(client, "neu") == []
    assert {pair.origin for pair in Datastore.open(served_store).pairs() if pair.source == "neuer"} == {
        "corrections#anybody"
    }
    assert client.delete(SEGMENTS, params={"origin": "own.tsv#3"}).json()["removed"] == 1
    assert targets(client, "neu") == []


def test_writers_that_come_together_are_all_there(client: TestClient, served_store: Path) -> None:
    def write(number: int) -> int:
        return client.post(SEGMENTS, json=segments((f"Nummer {number}", f"number {number}"))).status_code

    with ThreadPoolExecutor(8) as writers:
        assert set(writers.map(write, range(24))) == {201}
    opened = Datastore.open(served_store, verify=True)
    assert {pair.target for pair in opened.pairs()} >= {f"number {number}" for number in range(24)}


def test_changes_that_wait_are_published_together(tiny_translator: Translator, served_store: Path) -> None:
    writers = Writers(tiny_translator)
    writer = writers.of(served_store)
    pairs = [SegmentPair(f"q{number % 5}", f"t{number}", "o#1") for number in range(10)]
    before = Datastore.open(served_store).manifest.generation
    with writer._lock:
        writer._busy = True  # nobody begins yet
    done = [writer.put("replace", [pair]) for pair in pairs]
    writers._pool.submit(writer._work)
    generations = [each.result(60).generation - before for each in done]
    writers.close()
    assert generations == [1] * 5 + [2] * 5  # a source that comes again is corrected after the first time
    held = {pair.source: pair.target for pair in Datastore.open(served_store).pairs() if pair.origin == "o#1"}
    assert held == {f"q{number}": f"t{number + 5}" for number in range(5)}


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (lambda client: client.post(SEGMENTS, json=segments(("x" * 100, "y"))), 422, "segment 0: has 101 tokens"),
        (lambda client: client.post(SEGMENTS, json=segments((" ", "y"))), 422, "white space"),
        (lambda client: client.post("/v1/domains/base/segments", json=segments(("x", "y"))), 409, "no segments"),
        (lambda client: client.delete(SEGMENTS), 422, "give an origin, a source text"),
        (lambda client: client.delete(SEGMENTS, params={"origin": "*"}), 422, "asterisk"),
        (lambda client: client.delete("/v1/domains/small"), 409, "cannot be deleted"),
        (lambda client: client.delete("/v1/domains/base"), 409, "cannot be deleted"),
        (lambda client: client.post("/v1/domains", json={"name": "small", **segments(("a", "b"))}), 409, "already"),
        (lambda client: client.post("/v1/domains", json={"name": "../x", **segments(("a", "b"))}), 422, "name"),
        (lambda client: client.get("/v1/domains/..%2F..%2Fetc/segments?source=a"), 404, ""),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    client: TestClient, served_store: Path, change: Callable[[TestClient], object], status: int, words: str
) -> None:
    before = Datastore.open(served_store).manifest
    answer = change(client)
    assert answer.status_code == status  # type: ignore[attr-defined]
    assert words in answer.json()["message"]  # type: ignore[attr-defined]
    assert Datastore.open(served_store).manifest == before


def test_a_store_that_another_process_changes_is_waited_for(
    start_service: StartService, served_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "Writers", partial(Writers, locked_seconds=0.1))
    client = start_service(stores={"small": served_store})
    with writer_lock(served_store):
        answer = client.post(SEGMENTS, json=segments(("a", "b")))
    assert (answer.status_code, answer.json()["code"]) == (503, "locked")
    assert "retry-after" in answer.headers
    assert client.post(SEGMENTS, json=segments(("a", "b"))).status_code == 201


@pytest.mark.parametrize("works", [True, False])
def test_an_index_that_corrections_outgrow_is_renewed(
    start_service: StartService,
    served_store: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    works: bool,
) -> None:
    pytest.importorskip("faiss")
    started = []

    def start(command: list[str], **options: Any) -> Any:
        started.append(command)
        return warm.Popen(command if works else [*command[:-1], "nowhere"], **options)

    monkeypatch.setattr(index_renewal, "lags", partial(lags, noticeable_entries=0))
    monkeypatch.setattr(child_process, "start_process", start)
    build_index(Datastore.open(served_store), "rabitq")
    client = start_service(stores={"small": served_store})
    for number in range(2):  # searched exactly beside the index at once, whatever becomes of that
        assert client.post(SEGMENTS, json=segments((f"neu {number}", "one"))).status_code == 201
        assert translated(client, f"neu {number}") == "one"
    store = Datastore.open(served_store)
    if works:
        while (record := read_saved(store)) is None or record.entries < store.entries - 4:
            sleep(0.01)
    else:
        while "could not be renewed" not in caplog.text:
            sleep(0.01)
        assert client.post(SEGMENTS, json=segments(("neu 2", "one"))).status_code == 201
        assert len(started) == 1  # it would fail again
    assert translated(client, "neu 0") == "one"


def test_domains_are_made_and_deleted(start_service: StartService, served_store: Path, tmp_path: Path) -> None:
    client = start_service(stores={"small": served_store})
    made = client.post("/v1/domains", json={"name": "own", **segments(("a b", "c d"))})
    assert made.status_code == 201
    assert DomainAnswer.model_validate(made.json()).segments == 1
    assert client.post("/d/own/v1/translate", json={"texts": ["a b"]}).json()["translations"][0]["text"] == "c d"
    again = start_service(stores={"small": served_store})  # as after a restart
    known = DomainsAnswer.model_validate(again.get("/v1/domains").json())
    assert [each.name for each in known.domains] == ["base", "small", "own"]
    assert str(tmp_path) not in again.get("/v1/domains").text
    assert again.delete("/v1/domains/own").status_code == 204
    assert again.get("/v1/domains/own").status_code == 404
    assert list((tmp_path / "data").rglob("manifest.json")) == []


@pytest.mark.parametrize("made_anew", [False, True])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/domains/short/segments", segments(("Satz", "sentence"))),
        ("GET", "/v1/domains/short", None),
        ("POST", "/v1/translate", {"texts": ["Satz"], "domain": "short", "retrieval": {"k": 2}}),
    ],
)
def test_a_domain_that_is_deleted_while_it_is_used(
    start_service: StartService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: object,
    made_anew: bool,
) -> None:
    """A request that has found the domain, and then finds no store, is told so."""
    client = start_service()
    assert client.post("/v1/domains", json={"name": "short", **segments(("Satz", "sentence"))}).status_code == 201
    of = Domains.of

    def deleted(domains: Domains, name: str | None) -> Domain:
        found = of(domains, name)
        monkeypatch.setattr(Domains, "of", of)
        domains.delete("short")
        if made_anew:
            domains._known["short"] = found
        return found

    monkeypatch.setattr(Domains, "of", deleted)
    answer = client.request(method, path, json=body)
    expected = (503, "deleted") if made_anew else (404, "unknown_domain")
    assert (answer.status_code, answer.json()["code"]) == expected, answer.text
    assert str(tmp_path) not in answer.text
    assert [each["name"] for each in client.get("/v1/domains").json()["domains"]] == ["base"]
