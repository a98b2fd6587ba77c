"""LibreTranslate's dialect, by a published client, and what other tools that speak it rely on."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from libretranslatepy import LibreTranslateAPI  # type: ignore[import-untyped]

from knnmt.corpus.language_guess import guess_of
from knnmt.service.access import new_key
from support.loopback import listening
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
KNOWN = "Satz 3 ja ja ja"
PAIR = {"source": "de", "target": "en"}


def held(client: TestClient, source: str) -> str:
    answer = client.get("/v1/domains/small/segments", params={"source": source})
    return str(answer.json()["segments"][0]["target"])


def test_a_published_client(client: TestClient) -> None:
    with listening(client.app) as address:
        api = LibreTranslateAPI(address, api_key="any")
        assert api.translate(KNOWN, "de", "en") == held(client, KNOWN)
        assert api.detect("Das ist ein Satz, und der ist nicht kurz.")[0]["language"] == "de"
        assert api.languages() == [
            {"code": "de", "name": "German", "targets": ["en"]},
            {"code": "en", "name": "English", "targets": []},
        ]
        assert LibreTranslateAPI(f"{address}/d/base").translate(KNOWN, "de", "en") != held(client, KNOWN)


def test_a_text_or_several_by_address_form_or_json(client: TestClient) -> None:
    """Trap: a plug-in of OmegaT sends GET, which LibreTranslate itself refuses."""
    one = {"translatedText": held(client, KNOWN)}
    assert client.get("/translate", params={"q": KNOWN, **PAIR}).json() == one
    assert client.post("/translate", data={"q": KNOWN, **PAIR}).json() == one
    assert client.post("/translate", json={"q": KNOWN, **PAIR}).json() == one
    answer = client.post("/translate", json={"q": [KNOWN, "Wort"], "target": "en", "source": "auto", "alternatives": 2})
    told = answer.json()
    assert told["translatedText"][0] == held(client, KNOWN)
    assert [each["language"] for each in told["detectedLanguage"]] == ["de", "de"]
    assert len(told["alternatives"][1]) == 2
    page = f"<p>{KNOWN}</p> <p>{KNOWN}</p>"
    made = client.post("/translate", json={"q": page, "format": "html", **PAIR}).json()["translatedText"]
    assert re.fullmatch("(<p>[Ll]ine 3 [yes ]+</p>) \\1", made)


@pytest.mark.parametrize("sent", [b"&" * 400_000, b"q=" + b"%" * 400_000, b"%zz" * 100_000 + b"%"])
def test_a_form_takes_no_more_memory_than_its_text(client: TestClient, sent: bytes) -> None:
    """4 million fields took 700 MB, and a service answered nobody for seconds."""
    kind = {"content-type": "application/x-www-form-urlencoded"}
    tracemalloc.start()
    try:
        answer = client.post("/translate", content=sent, headers=kind)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.status_code in (400, 422)
    assert taken < 10e6


def test_what_weblate_needs(client: TestClient) -> None:
    """Placeholders are literal, and settings are saved if "test" comes back from English to German."""
    for text in ("Wort [X3X] und [X12X]", "[X3X]Wort[X12X]", "[X3X][X12X] [X0X]!"):
        made = client.post("/translate", json={"q": text, **PAIR}).json()["translatedText"]
        assert sorted(re.findall(r"\[X\d+X\]", made)) == sorted(re.findall(r"\[X\d+X\]", text)), made
    probe = {"q": ["test"], "source": "en", "target": "de"}
    assert client.post("/translate", json=probe).json() == {"translatedText": ["test"]}
    other = client.post("/translate", json={**probe, "q": "other"})
    assert (other.status_code, set(other.json()) >= {"error"}) == (400, True)
    assert "de to en" in other.json()["error"]


def test_languages_are_told_without_a_key_and_domains_are_not(
    start_service: StartService, served_store: Path, tmp_path: Path
) -> None:
    """Trap: Weblate asks for the languages without its key."""
    key = new_key(tmp_path / "keys.json", "reader", "translate")
    client = start_service(stores={"small": served_store}, keys=tmp_path / "keys.json")
    assert client.get("/d/small/languages").json() == client.get("/d/none/languages").json() == []
    mine = client.get("/d/small/languages", params={"api_key": key}).json()
    assert [each["code"] for each in mine] == ["de", "en"]
    assert client.get("/d/small/languages", params={"api_key": "wrong"}).status_code == 403
    for path in ("frontend/settings", "translate?q=a&source=de&target=en"):
        both = [client.get(f"/d/{name}/{path}") for name in ("small", "none")]
        assert both[0].json() == both[1].json()


def test_suggestions_are_learned_where_that_is_allowed(
    start_service: StartService, served_store: Path, tmp_path: Path
) -> None:
    """Trap: LibreTranslate asks no key for them, and nobody reads what it stores."""
    file = tmp_path / "keys.json"
    reader, writer = new_key(file, "reader", "translate"), new_key(file, "writer", "write")
    client = start_service(stores={"small": served_store}, keys=file)
    better = {"q": KNOWN, "s": "ganz anders", **PAIR}
    assert not client.get("/frontend/settings").json()["suggestions"]
    for key in ({}, {"api_key": reader}):
        refused = client.post("/suggest", data={**better, **key})
        assert (refused.status_code, "error" in refused.json()) == (403, True)
    assert client.post("/suggest", data={**better, "api_key": writer}).json() == {"success": True}
    made = client.get("/translate", params={"q": KNOWN, "api_key": reader, **PAIR})
    assert made.json()["translatedText"] == "ganz anders"
    assert client.post("/d/base/suggest", json={**better, "api_key": writer}).status_code == 400


def test_documents(client: TestClient) -> None:
    page = f"<html><body><p>{KNOWN}</p></body></html>"
    sent = {"files": {"file": ("page.html", page)}, "data": PAIR}
    place = client.post("/translate_file", **sent).json()["translatedFileUrl"]  # type: ignore[arg-type]
    assert place.endswith(".html")
    taken = client.get(place)
    assert taken.text == page.replace(KNOWN, held(client, KNOWN))
    assert (taken.headers["content-disposition"], taken.headers["x-content-type-options"]) == ("attachment", "nosniff")
    assert client.get(place).status_code == 404
    refused = client.post("/translate_file", data=PAIR, files={"file": ("page.exe", b"\x7fELF\0")})
    assert (refused.status_code, "error" in refused.json()) == (400, True)
    assert client.post("/translate_file", data=PAIR).status_code == 400


@pytest.mark.parametrize(
    ("text", "tag"),
    [("the cat and the dog", "en"), ("der Hund und die Katze", "de"), ("и так далее", "ru"), ("xyz", None), ("", None)],
)
def test_guesses_of_one_text(text: str, tag: str | None) -> None:
    guessed = guess_of(text)
    assert (guessed[0] if guessed else None) == tag
    assert guessed is None or 0 < guessed[1] <= 1
