"""OPUS-CAT's, Apertium's and tmserver's dialects: what the tools that speak them send, and read of the answers."""

from __future__ import annotations

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
from fastapi.testclient import TestClient

from knnmt.engine.transformer import TransformerEngine
from knnmt.service.access import new_key
from knnmt.service.config import Limits
from knnmt.service.dialects.opuscat import TranslationPair
from knnmt.translator import word_alignment
from knnmt.translator.word_alignment import aligned_words
from support.loopback import listening
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
KNOWN = "Satz 3 ja ja ja"
CODES = {"tokenCode": "0", "srcLangCode": "de", "trgLangCode": "en"}


def held(client: TestClient, source: str) -> str:
    answer = client.get("/v1/domains/small/segments", params={"source": source})
    return str(answer.json()["segments"][0]["target"])


def test_what_plug_ins_of_opus_cat_send(client: TestClient) -> None:
    """Trap: memoQ's puts tags back by the alignment. It sends two quotes for no tag, and writes the path in its way."""
    asked = {**CODES, "input": KNOWN, "modelTag": '""'}
    told = client.get("/MtRestService/TranslateJson", params=asked).json()
    pair = TranslationPair.model_validate(told)
    assert pair.translation == pair.Translation == held(client, KNOWN)
    assert "".join(pair.SegmentedTranslation).replace("\u2581", " ").lstrip() == pair.translation
    assert [each.lstrip("\u2581") for each in pair.SegmentedSourceSentence] == KNOWN.split()
    assert {int(each) for each in pair.SegmentedAlignmentTargetToSource} == set(range(len(pair.translation.split())))
    assert all(0 <= int(each) < 5 for each in pair.SegmentedAlignmentSourceToTarget)
    posted = client.post("/MTRestService/TranslatePost", data={**asked, "modelTag": ""}).json()
    assert posted == told
    empty = client.get("/MTRestService/TranslateJson", params={**CODES, "input": ""}).json()
    assert (empty["translation"], empty["AlignmentString"]) == ("", "")
    assert client.get("/MTRestService/Translate", params={**asked, "modelTag": "small"}).json() == held(client, KNOWN)
    assert client.get("/MTRestService/TranslateStream", params=asked).text == held(client, KNOWN)
    german = {**CODES, "srcLangCode": "ger", "trgLangCode": "eng", "input": [KNOWN, KNOWN]}
    assert client.get("/MTRestService/BatchTranslate", params=german).json() == [held(client, KNOWN)] * 2
    assert client.get("/MTRestService/ListSupportedLanguagePairs").json() == ["de-en"]
    assert client.get("/MtRestService/GetLanguagePairModelTags", params=CODES).json() == ["base", "small"]
    assert "small" in client.get("/MtRestService/CheckModelStatus", params={**CODES, "modelTag": "small"}).json()
    assert client.get("/MTRestService/Translate", params={**asked, "modelTag": "no"}).status_code == 404
    assert client.get("/MTRestService/Translate", params={**asked, "trgLangCode": "fr"}).status_code == 400


def test_what_trados_orders_is_there_when_it_asks_for_it(start_service: StartService, served_store: Path) -> None:
    """Its plug-in fails where it cannot order the segments that come next."""
    client = start_service(stores={"small": served_store}, limits=Limits(queue=2))
    service = client.app.state.service  # type: ignore[attr-defined]
    texts = ["noch ein Satz", "und noch einer"]
    ordered = client.post("/MtRestService/PreOrderBatch", params={**CODES, "modelTag": "small"}, json=texts)
    assert (ordered.status_code, ordered.json()) == (200, None)
    for text in texts:
        asked = {**CODES, "input": text, "inputIsSingleSentence": "true"}
        assert client.get("/MtRestService/TranslateJson", params=asked).status_code == 200
    assert service.batcher.hits == 2
    many = client.post("/MtRestService/PreOrderBatch", params=CODES, json=[f"Satz {n} ja" for n in range(9)])
    assert many.status_code == 200  # whether there was room or not
    for wrong in ("[]", "{}", "[1]", '"a"', "["):
        assert client.post("/MtRestService/PreOrderBatch", params=CODES, content=wrong).status_code == 400


def test_what_is_stored_is_learned(start_service: StartService, served_store: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    writer, reader = new_key(file, "writer", "write"), new_key(file, "reader", "translate")
    client = start_service(stores={"small": served_store}, keys=file)
    pair = {**CODES, "source": KNOWN, "target": "ganz anders"}
    statuses = [
        client.post("/MTRestService/StoreTranslation", data={**pair, "tokenCode": key}).status_code
        for key in ("0", reader, writer)
    ]
    assert statuses == [401, 403, 200]
    asked = {**CODES, "tokenCode": reader, "input": KNOWN}
    assert client.get("/MTRestService/Translate", params=asked).json() == "ganz anders"
    many = {**CODES, "tokenCode": writer, "sources": [KNOWN, "b"], "targets": ["c", "d"]}
    assert client.post("/MTRestService/BatchStoreTranslation", json=many).json() == [0, 1]
    assert client.get("/MTRestService/Translate", params=asked).json() == "c"
    assert client.get("/MTRestService/StoreTranslation", params={**pair, "tokenCode": writer}).status_code == 405


def test_words_are_aligned_by_attention(tiny: TransformerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With attention that needs the source backwards, words are linked backwards."""

    class Backwards:
        def __init__(self, sources: list[list[int]], targets: list[list[int]]) -> None:
            self.cross_attention = torch.eye(len(sources[0]))[: len(sources[0]) - 1].flip(0)[None]

    def force(_engine: object, sources: list[list[int]], targets: list[list[int]], **_: object) -> Backwards:
        return Backwards(sources, targets)

    monkeypatch.setattr(word_alignment, "force", force)
    words = aligned_words(tiny, "ab cd  ef", "gh ij kl")
    assert words.source == ("ab", "cd", "ef")
    assert (0, 2) in words.links
    assert (2, 0) in words.links
    assert aligned_words(tiny, "a " * 9, "b " * 2000).links[-1] == (8, 1999)  # too long for the model: by place
    assert aligned_words(tiny, "", "b").links == ()


def test_apertium(client: TestClient) -> None:
    """Trap: OmegaT sends a bare | in the address, and languages with regions."""
    with listening(client.app) as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc)
        line = "/apy/translate?q=Satz%203%20ja%20ja%20ja&markUnknown=no&format=omegat&langpair=de_DE|en_US&key="
        connection.putrequest("GET", line)
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 200
        connection.close()
    told = client.get("/apy/translate", params={"q": KNOWN, "langpair": "deu|eng"}).json()
    assert told == {
        "responseData": {"translatedText": held(client, KNOWN)},
        "responseDetails": None,
        "responseStatus": 200,
    }
    # Trap: OmegaT 3.6 does not parse JSON. It takes what stands between these marks, and knows long escapes.
    written = client.get("/apy/translate", params={"q": KNOWN, "langpair": "deu|eng"}).text
    assert written.partition('{"translatedText": "')[2].partition('"}')[0] == held(client, KNOWN)
    client.put("/v1/domains/small/segments", json={"segments": [{"source": "Pfad", "target": 'ä "C:\\temp"'}]})
    escaped = client.get("/apy/translate", params={"q": "Pfad", "langpair": "deu|eng"})
    assert '"\\u00e4 \\u0022C:\\u005ctemp\\u0022"' in escaped.text
    assert escaped.json()["responseData"]["translatedText"] == 'ä "C:\\temp"'
    pairs = client.get("/apy/listPairs").json()
    assert pairs["responseData"] == [{"sourceLanguage": "de", "targetLanguage": "en"}]
    page = client.post("/apy/translate", data={"q": f"<b>{KNOWN}</b>", "langpair": "deu|eng", "format": "html"}).json()
    assert page["responseData"]["translatedText"].startswith("<b>")
    for wrong in ("deu", "deu|fra", "deu|eng|fra"):
        refused = client.get("/apy/translate", params={"q": KNOWN, "langpair": wrong})
        assert (refused.status_code, "explanation" in refused.json()) == (400, True)


def test_tmserver(client: TestClient) -> None:
    assert client.get("/tmserver/languages/").json() == {"sourceLanguages": ["de"], "targetLanguages": ["en"]}
    found = client.get("/tmserver/de/en/unit/Satz%203%20ja%20ja%20nein").json()
    assert (found[0]["quality"], found[0]["target"]) == (80, held(client, KNOWN))
    assert client.get("/tmserver/de/en/unit/und%2Foder").json() == []
    # Trap: Weblate saves its settings if there is an answer for these languages.
    assert client.get("/tmserver/en/de/unit/test").json() == []
    assert client.get("/d/base/tmserver/de/en/unit/a").status_code == 400
