"""A service without a named model, with a memory in each direction: languages, stores and texts choose the model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from knnmt import SegmentPair, build
from knnmt.service import child_process
from knnmt.service.config import ServiceConfig
from knnmt.service.http.app import make_app
from knnmt.service.service import Service
from support import warm

GERMAN, ENGLISH = "Die Anzeige blinkt rot.", "The beacon flashes crimson."
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    place = tmp_path_factory.mktemp("both")
    build([SegmentPair(GERMAN, ENGLISH, "test")], place / "de-en.store", device="cpu", source_lang="de")
    build([SegmentPair(ENGLISH, GERMAN, "test")], place / "en-de.store", device="cpu", source_lang="en")
    stores = {"german": place / "de-en.store", "english": place / "en-de.store"}
    service = Service(ServiceConfig(stores=stores, data=place / "data", device="cpu"))
    with TestClient(make_app(service), base_url="http://127.0.0.1") as client:
        yield client


def translated(
    client: TestClient, *texts: str, path: str = "/v1/translate", **asked: Any
) -> list[tuple[str, str, str]]:
    answer = client.post(path, json={"texts": texts, **asked})
    assert answer.status_code == 200, answer.text
    names = ("source_language", "target_language", "text")
    return [(each[names[0]], each[names[1]], each[names[2]]) for each in answer.json()["translations"]]


def test_domains_say_their_languages(both: TestClient) -> None:
    domains = {each["name"]: each for each in both.get("/v1/domains").json()["domains"]}
    assert domains["base"]["directions"] == [{"source": "de", "target": "en"}, {"source": "en", "target": "de"}]
    assert (domains["base"]["source_language"], domains["base"]["target_language"]) == (None, None)
    assert (domains["english"]["source_language"], domains["english"]["target_language"]) == ("en", "de")


def test_texts_languages_and_domains_choose(both: TestClient) -> None:
    assert translated(both, "Datei speichern") == [("de", "en", "Save File")]
    assert translated(both, "OK", "Save the file.")[1] == ("en", "de", "Speichern Sie die Datei.")
    assert translated(both, "OK", source_language="en")[0][:2] == ("en", "de")
    assert translated(both, GERMAN, domain="german") == [("de", "en", ENGLISH)]
    assert translated(both, ENGLISH, domain="english") == [("en", "de", GERMAN)]
    unclear = both.post("/v1/translate", json={"texts": ["OK"]})
    assert unclear.status_code == 422
    assert "source_language in a request" in unclear.json()["message"]
    absent = both.post("/v1/translate", json={"texts": ["OK"], "source_language": "de", "target_language": "fr"})
    assert absent.status_code == 422
    assert "--model Helsinki-NLP/opus-mt-de-fr" in absent.json()["message"]


def test_without_a_named_domain_the_languages_choose_the_only_memory(both: TestClient) -> None:
    assert translated(both, ENGLISH, source_language="en", target_language="de") == [("en", "de", GERMAN)]
    assert translated(both, GERMAN, source_language="de-AT", target_language="en")[0][2] == ENGLISH
    assert translated(both, ENGLISH, source_language="en") == [("en", "de", GERMAN)]
    assert translated(both, GERMAN, target_language="en") == [("de", "en", ENGLISH)]
    deepl = both.post("/v2/translate", json={"text": [ENGLISH], "target_lang": "DE"}).json()["translations"]
    assert deepl == [{"detected_source_language": "EN", "text": GERMAN}]
    libre = both.post("/translate", json={"q": GERMAN, "source": "auto", "target": "en"}).json()
    assert libre["translatedText"] == ENGLISH
    assert libre["detectedLanguage"]["language"] == "de"
    for pair, text, expected in (("deu|eng", GERMAN, ENGLISH), ("eng|deu", ENGLISH, GERMAN)):
        told = both.get("/apy/translate", params={"langpair": pair, "q": text}).json()
        assert told["responseData"]["translatedText"] == expected
    assert both.get("/tmserver/en/de/unit/The beacon flashes crimson").json()[0]["target"] == GERMAN
    assert both.post("/d/base/v2/translate", json={"text": ["Save File"], "target_lang": "DE"}).status_code == 200
    refused = both.post("/d/german/v2/translate", json={"text": [ENGLISH], "target_lang": "DE"})
    assert "target_lang" in refused.json()["message"]
    refused = both.post("/d/german/v1/translate", json={"texts": [ENGLISH], "source_language": "en"})
    assert refused.status_code == 422
    assert refused.json()["message"] == "the domain 'german' translates de to en, not from en to any language"


def test_explanations_and_matches_of_both(both: TestClient) -> None:
    for domain, text, target in (("german", GERMAN, ENGLISH), ("english", ENGLISH, GERMAN)):
        [explained] = both.post("/v1/explain", json={"texts": [text], "domain": domain}).json()["explanations"]
        assert explained["text"] == target
        [[match]] = both.post("/v1/match", json={"texts": [text], "domain": domain}).json()["matches"]
        assert match["target"] == target


def test_corrections_of_both(both: TestClient) -> None:
    for domain, text, target in (("german", "Neu hier", "Fresh"), ("english", "New here", "Frisch")):
        pairs = {"segments": [{"source": text, "target": target}]}
        assert both.put(f"/v1/domains/{domain}/segments", json=pairs).status_code == 200
        assert translated(both, text, domain=domain)[0][2] == target
        [correction] = both.get(f"/v1/domains/{domain}/corrections").json()["corrections"]
        assert both.delete(f"/v1/domains/{domain}/corrections/{correction['id']}").status_code == 200


def test_documents_choose(both: TestClient) -> None:
    catalog = 'msgid ""\nmsgstr "Language: {}\\n"\n\nmsgid "{}"\nmsgstr ""\n'
    for language, text, part in (("de", "Save the file.", b"Speichern"), ("en", "Datei speichern", b"Save File")):
        sent = both.post("/v1/documents", params={"name": "a.po"}, content=catalog.format(language, text).encode())
        while both.get(sent.headers["location"]).json()["state"] not in ("done", "failed"):
            time.sleep(0.02)
        assert part in both.get(f"{sent.headers['location']}/content").content
    asked = {"name": "a.po", "domain": "german"}
    sent = both.post("/v1/documents", params=asked, content=catalog.format("de", "Save the file.").encode())
    while (known := both.get(sent.headers["location"]).json())["state"] not in ("done", "failed"):
        time.sleep(0.02)
    assert "the domain 'german' translates de to en" in known["message"]
    assert "name a domain of these languages" in known["message"]


def test_new_domains_choose(both: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "start_process", warm.Popen)
    pairs = [{"source": "Open the window.", "target": "Das Fenster öffnen."}]
    made = both.post("/v1/domains", json={"name": "pairs", "segments": pairs}).json()
    assert (made["source_language"], made["target_language"]) == ("en", "de")
    assert translated(both, "Open the window.", domain="pairs") == [("en", "de", "Das Fenster öffnen.")]
    table = "Close the window.\tDas Fenster schließen.\n"
    for asked, state in (({}, "done"), ({"source_language": "de"}, "done"), ({"target_language": "fr"}, None)):
        name = f"sent-{len(asked)}-{state}"
        answer = both.post(f"/v1/domains/{name}/memories", params={"name": "a.tsv", **asked}, content=table)
        if state is None:
            assert answer.status_code == 422
            continue
        number = answer.json()["id"]
        while (job := both.get(f"/v1/jobs/{number}").json())["state"] in ("waiting", "running"):
            time.sleep(0.02)
        assert job["state"] == state, job
        known = both.get(f"/v1/domains/{name}").json()
        assert known["source_language"] == asked.get("source_language", "en")
        both.delete(f"/v1/domains/{name}")
    assert any(line.startswith("model") for line in job["summary"])
    both.delete("/v1/domains/pairs")


def test_sentences_come_with_their_language(both: TestClient) -> None:
    assert both.post("/v1/sentences", json={"text": "Save it. OK"}).json() == {
        "sentences": ["Save it. ", "OK"],
        "language": "en",
    }


def test_one_memory_is_the_default_and_the_model_serves_the_other_direction(tmp_path: Path) -> None:
    build([SegmentPair(GERMAN, ENGLISH, "test")], tmp_path / "s", device="cpu", source_lang="de")
    service = Service(ServiceConfig(stores={"german": tmp_path / "s"}, device="cpu"))
    with TestClient(make_app(service), base_url="http://127.0.0.1") as client:
        assert translated(client, GERMAN) == [("de", "en", ENGLISH)]
        assert translated(client, "Save the file.", domain="base") == [("en", "de", "Speichern Sie die Datei.")]
