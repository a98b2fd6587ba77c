"""What a domain has learned is listed and undone, and its memory is searched for words."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fastapi.testclient import TestClient

from knnmt.service.access import new_key
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
KNOWN = "Satz 3 ja ja ja"
SEGMENTS, CORRECTIONS = "/v1/domains/small/segments", "/v1/domains/small/corrections"


def held(client: TestClient, source: str = KNOWN) -> list[tuple[str, str]]:
    found = client.get(SEGMENTS, params={"source": source}).json()["segments"]
    return sorted((each["target"], each["origin"]) for each in found)


def correct(client: TestClient, *pairs: tuple[str, str], **headers: str) -> None:
    segments = [{"source": source, "target": target} for source, target in pairs]
    assert client.put(SEGMENTS, json={"segments": segments}, headers=headers).status_code == 200


def listed(client: TestClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(CORRECTIONS).json()["corrections"]
    return found


def undo(client: TestClient, number: int = 0) -> int:
    return int(client.delete(f"{CORRECTIONS}/{listed(client)[number]['id']}").status_code)


def test_corrections_are_undone_one_after_the_other(client: TestClient) -> None:
    """Trap: what a correction replaced has another origin, and there may be several of it."""
    client.post(SEGMENTS, json={"segments": [{"source": KNOWN, "target": "another", "origin": "b.tsv#1"}]})
    before = held(client)
    assert len(before) == 2
    correct(client, (KNOWN, "first"), ("Neu", "new"))
    correct(client, (KNOWN, "second"))
    newest, new = listed(client)  # one for each source
    assert [(each["source"], each["target"]) for each in newest["segments"]] == [(KNOWN, "second")]
    assert [each["target"] for each in newest["replaced"]] == ["first"]
    assert (newest["by"], new["replaced"]) == ("anybody", [])
    assert undo(client) == 200
    assert held(client) == [("first", "corrections#anybody")]
    assert [each["segments"][0]["target"] for each in listed(client)] == ["new", "first"]
    assert undo(client, 1) == 200
    assert held(client) == before
    assert undo(client) == 200
    assert held(client, "Neu") == []
    assert listed(client) == []


def test_what_changes_nothing_is_not_listed_and_a_target_that_stays_comes_back_alone(client: TestClient) -> None:
    client.post(SEGMENTS, json={"segments": [{"source": KNOWN, "target": "another", "origin": "b.tsv#1"}]})
    before = held(client)
    correct(client, (KNOWN, "another"))
    assert held(client) == [("another", "b.tsv#1")]
    correct(client, (KNOWN, "another"))
    assert len(listed(client)) == 1
    assert undo(client) == 200
    assert held(client) == before


def test_what_was_changed_since_is_not_undone(client: TestClient) -> None:
    correct(client, (KNOWN, "first"))
    client.delete(SEGMENTS, params={"source": KNOWN})
    assert undo(client) == 409
    assert held(client) == []
    assert client.delete(f"{CORRECTIONS}/0").status_code == 404
    assert client.get("/v1/domains/base/corrections").status_code == 409


def test_corrections_of_tools_are_listed_and_outlive_the_service(
    start_service: StartService, served_store: Path, tmp_path: Path
) -> None:
    stores = {"small": served_store}
    before = held(client := start_service(stores=stores))
    languages = {"source": "de", "target": "en"}
    assert client.post("/suggest", json={"q": KNOWN, "s": "suggested", **languages}).status_code == 200
    [correction] = listed(client)
    assert correction["segments"][0]["target"] == "suggested"
    (tmp_path / "data" / "corrections" / "broken.json").write_text("{", encoding="utf-8")
    again = start_service(stores=stores)
    assert listed(again) == [correction]
    assert undo(again) == 200
    assert held(again) == before
    assert listed(start_service(stores=stores)) == []


def test_a_domain_that_is_deleted_takes_its_corrections_along(client: TestClient) -> None:
    pair = {"source": KNOWN, "target": "first"}
    for _ in range(2):
        assert client.post("/v1/domains", json={"name": "made", "segments": [pair]}).status_code == 201
        assert client.get("/v1/domains/made/corrections").json()["corrections"] == []
        client.put("/v1/domains/made/segments", json={"segments": [{**pair, "target": "second"}]})
        assert len(client.get("/v1/domains/made/corrections").json()["corrections"]) == 1
        client.delete("/v1/domains/made")


def test_only_a_key_that_may_write_undoes(start_service: StartService, served_store: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    writer, reader = ({"Authorization": f"Bearer {new_key(file, role, role)}"} for role in ("write", "translate"))
    client = start_service(stores={"small": served_store}, keys=file)
    correct(client, (KNOWN, "first"), **writer)
    [correction] = client.get(CORRECTIONS, headers=reader).json()["corrections"]
    assert correction["by"] == "write"
    statuses = [
        client.delete(f"{CORRECTIONS}/{correction['id']}", headers=each).status_code for each in (reader, writer)
    ]
    assert statuses == [403, 200]


def test_a_memory_is_searched_for_words(client: TestClient) -> None:
    correct(client, ("Ganz Neues", "something new"))

    def search(words: str, **more: Any) -> list[str]:
        answer = client.get("/v1/domains/small/concordance", params={"words": words, **more})
        return [each["target"] for each in answer.json()["segments"]]

    assert search("NEU thing") == ["something new"]
    assert search("neu xyz") == []
    assert search("satz", limit=2) == search("satz")[:2]
    for wrong in ("words=%20", "words=" + "a+" * 21, "words=a&limit=0", ""):
        assert client.get(f"/v1/domains/small/concordance?{wrong}").status_code == 422
    assert client.get("/v1/domains/base/concordance", params={"words": "a"}).status_code == 409


def test_a_search_that_nobody_waits_for_ends(client: TestClient) -> None:
    """One search reads a memory at a time, so that one which took too long must not hold up the others."""
    service = client.app.state.service  # type: ignore[attr-defined]
    going_on = Event()
    service.searches.submit("other", 1, going_on.wait)
    answer = client.get("/v1/domains/small/concordance", params={"words": "satz", "timeout_seconds": 0.05})
    assert answer.status_code == 504
    going_on.set()
    assert client.get("/v1/domains/small/concordance", params={"words": "satz"}).status_code == 200
