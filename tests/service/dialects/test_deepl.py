"""DeepL's dialect, by its own published client, and what other tools that speak it rely on."""

from __future__ import annotations

import inspect
import io
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deepl
import pytest
import requests
from deepl.api_data import MultilingualGlossaryDictionaryEntries
from fastapi.testclient import TestClient

from knnmt.errors import DatastoreLockedError
from knnmt.service import child_process
from knnmt.service.access import new_key
from knnmt.service.config import Limits
from knnmt.service.dialects.deepl import TranslateAnswer
from knnmt.service.problems import Problem
from knnmt.translator.translator import Translator
from support import warm
from support.loopback import listening
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
KNOWN = "Satz 3 ja ja ja"
IMPATIENT = SimpleNamespace(time=time.time, sleep=lambda _seconds: time.sleep(0.02))


@pytest.fixture
def server(client: TestClient) -> Iterator[str]:
    with listening(client.app) as address:
        yield address


@pytest.fixture
def api(server: str) -> Iterator[Any]:
    api: Any = deepl.DeepLClient("any", server_url=server)
    yield api
    api.close()


def held(client: TestClient, source: str) -> str:
    answer = client.get("/v1/domains/small/segments", params={"source": source})
    return str(answer.json()["segments"][0]["target"])


def texts_of(client: TestClient, prefix: str = "", **asked: object) -> list[str]:
    answer = client.post(f"{prefix}/v2/translate", json={"target_lang": "EN-GB", **asked})
    assert answer.status_code == 200, answer.text
    return [each.text for each in TranslateAnswer.model_validate(answer.json()).translations]


def test_texts_with_the_published_client(
    api: Any, client: TestClient, server: str, tiny_translator: Translator
) -> None:
    known = api.translate_text(KNOWN, source_lang="DE", target_lang="EN-GB")
    assert isinstance(known, deepl.TextResult)
    assert (known.text, known.detected_source_lang, known.billed_characters) == (held(client, KNOWN), "DE", len(KNOWN))
    [memory] = api.list_translation_memories()
    several = api.translate_text(
        ["Wort", "zwei Worte"],
        target_lang="en-us",
        split_sentences=deepl.SplitSentences.OFF,
        preserve_formatting=True,
        formality=deepl.Formality.PREFER_MORE,
        model_type="latency_optimized",
        context="irgendwo",
        outline_detection=False,
        translation_memory=memory,
        translation_memory_threshold=75,
    )
    assert [(each.detected_source_lang, each.model_type_used) for each in several] == [("DE", "latency_optimized")] * 2
    # Trap: the client joins addresses, so that a prefix without a final slash loses its last part.
    alone: Any = deepl.DeepLClient("any", server_url=f"{server}/d/base/")
    expected = tiny_translator.translate("Wort", split_sentences=True, protect=True).text
    assert alone.translate_text("Wort", target_lang="EN-GB").text == expected
    alone.close()
    without: Any = deepl.DeepLClient("any", server_url=f"{server}/d/base")
    with pytest.raises(deepl.DeepLException, match="end with a slash"):
        without.translate_text("Wort", target_lang="EN-GB")
    without.close()
    assert api.get_usage().character.count == len(KNOWN + "Wort" + "zwei Worte" + "Wort")
    assert [each.code for each in api.get_source_languages()] == ["DE"]
    assert [each.code for each in api.get_target_languages()] == ["EN-GB", "EN-US"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"target_lang": "XX"}, "target_lang.*not supported"),
        ({"target_lang": "FR"}, "target_lang.*not supported.*DE to EN"),
        ({"source_lang": "XX"}, "source_lang.*not supported"),
        ({"formality": "invalid"}, "formality"),
        ({"formality": "more"}, "Target language.*formality"),
        ({"split_sentences": "invalid"}, "split_sentences"),
        ({"tag_handling": "tex"}, "tag_handling"),
        ({"glossary": "no", "source_lang": "DE"}, "no glossary"),
        ({"translation_memory": "no"}, "no translation memory"),
        ({"style_rule": "no"}, "no style rules"),
    ],
)
def test_what_cannot_be_had_is_said(api: Any, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(deepl.DeepLException, match=words):
        api.translate_text("Wort", **{"target_lang": "EN-GB", **asked})


def test_what_does_not_apply_is_said_in_words(api: Any) -> None:
    """Every method of the client that other tests do not call."""
    assert api.get_all_style_rules() == []
    style = "there are no style rules"
    for name, asked, words in (
        ("rephrase_text", ["Wort"], "does not rephrase"),
        ("correct_text", ["Wort"], "does not rephrase or correct"),
        ("create_style_rule", ["name", "de"], style),
        ("get_style_rule", ["1"], style),
        ("update_style_rule_name", ["1", "name"], style),
        ("update_style_rule_configured_rules", ["1", {}], style),
        ("delete_style_rule", ["1"], style),
        ("create_style_rule_custom_instruction", ["1", "label", "prompt"], style),
        ("get_style_rule_custom_instruction", ["1", "2"], style),
        ("update_style_rule_custom_instruction", ["1", "2", "label", "prompt"], style),
        ("delete_style_rule_custom_instruction", ["1", "2"], style),
    ):
        with pytest.raises(deepl.DeepLException, match=words):
            getattr(api, name)(*asked)


def test_every_method_of_the_published_client_is_called() -> None:
    called = set(re.findall(r"\bapi\.(\w+)\(|^        \(\"(\w+)\", \[", Path(__file__).read_text(), re.MULTILINE))
    public = {name for name in dir(deepl.DeepLClient) if not name.startswith("_")}
    of_itself = {"server_url", "set_app_info"}  # what asks the service nothing
    assert public - {name for pair in called for name in pair} == of_itself


def test_every_option_of_texts_is_taken(api: Any) -> None:
    options: dict[str, Any] = {
        "source_lang": "DE",
        "context": "irgendwo",
        "split_sentences": "nonewlines",
        "preserve_formatting": True,
        "formality": "prefer_less",
        "glossary_ids": [api.create_glossary("terms", "DE", "EN", {"Wort": "xy"})],
        "tag_handling": "xml",
        "tag_handling_version": "v2",
        "outline_detection": False,
        "non_splitting_tags": ["b"],
        "splitting_tags": "p",
        "ignore_tags": ["x"],
        "model_type": "prefer_quality_optimized",
        "translation_memory": api.list_translation_memories()[0],
        "translation_memory_threshold": 90,
        "custom_instructions": ["kurz"],
        "extra_body_parameters": {"show_billed_characters": True},
    }
    refused = {"glossary", "style_rule"}  # of two ways to name glossaries one is taken; there are no style rules
    named = set(inspect.signature(api.translate_text).parameters) - {"text", "target_lang"}
    assert named - refused == set(options)
    made = api.translate_text("<p>ein Wort</p>", target_lang="EN-GB", **options)
    assert re.search("xy", made.text, re.IGNORECASE)
    assert (made.text[:3], made.model_type_used) == ("<p>", "quality_optimized")


def test_glossaries_with_the_published_client(api: Any, client: TestClient) -> None:
    assert [(each.source_lang, each.target_lang) for each in api.get_glossary_languages()] == [("de", "en")]
    made = api.create_glossary("terms", "DE", "EN-GB", {"Wort": "xy"})
    assert (made.source_lang, made.target_lang, made.entry_count) == ("DE", "EN", 1)
    assert api.get_glossary(made.glossary_id).name == "terms"
    assert api.get_glossary_entries(made) == {"Wort": "xy"}
    assert [each.glossary_id for each in api.list_glossaries()] == [made.glossary_id]
    with_term = api.translate_text_with_glossary("ein Wort", made)
    assert "xy" in with_term.text.lower()
    listed = api.translate_text(["ein Wort"], source_lang="DE", target_lang="EN-GB", glossary_ids=[made])
    assert listed[0].text == with_term.text
    table = api.create_glossary_from_csv("table", "DE", "EN", "Wort,word,DE,EN\r\n")
    assert api.get_glossary_entries(table.glossary_id) == {"Wort": "word"}
    api.delete_glossary(table)
    with pytest.raises(deepl.GlossaryNotFoundException):
        api.get_glossary(table.glossary_id)
    with pytest.raises(deepl.DeepLException, match="language tag"):
        api.create_glossary("n", "DE", "XX", {"a": "b"})
    for wrong in ("", "Wort", "Wort\ta\nWort\tb", "a\tb\tc", "\x01\tb"):
        asked = {"name": "n", "source_lang": "de", "target_lang": "en", "entries": wrong}
        assert client.post("/v2/glossaries", data=asked).status_code == 400


def test_glossaries_of_many_languages_with_the_published_client(api: Any, server: str) -> None:
    entries = MultilingualGlossaryDictionaryEntries
    made = api.create_multilingual_glossary("many", [entries("DE", "EN", {"a": "b"}), entries("FR", "EN", {"c": "d"})])
    assert [each.entry_count for each in api.get_multilingual_glossary(made.glossary_id).dictionaries] == [1, 1]
    assert api.update_multilingual_glossary_name(made, "other").name == "other"
    api.update_multilingual_glossary_dictionary(made, entries("DE", "EN", {"e": "f"}))
    found = api.get_multilingual_glossary_entries(made, "DE", "EN").dictionaries[0]
    assert found.entries == "a\tb\ne\tf"  # the client hands on what comes, here
    api.update_multilingual_glossary_dictionary_from_csv(made, "DE", "EN", "g,h")
    api.replace_multilingual_glossary_dictionary(made, entries("DE", "EN", {"i": "j"}))
    replaced = api.replace_multilingual_glossary_dictionary_from_csv(made, "FR", "EN", "k,l\r\nm,n")
    assert replaced.entry_count == 2
    api.delete_multilingual_glossary_dictionary(made, replaced)
    assert [each.name for each in api.list_multilingual_glossaries()] == ["other"]
    assert api.get_glossary_entries(made.glossary_id) == {"i": "j"}  # one pair is left
    api.delete_multilingual_glossary(made)
    assert api.list_multilingual_glossaries() == []
    csv = api.create_multilingual_glossary_from_csv("csv", "DE", "EN", "a,b")
    assert csv.dictionaries[0].entry_count == 1


def test_glossaries_as_the_client_for_node_sends_them(client: TestClient) -> None:
    """In forms, whose fields say of which dictionary they are."""
    form = {
        "name": "many",
        "dictionaries[1].source_lang": "fr",
        "dictionaries[1].target_lang": "en",
        "dictionaries[1].entries": "c,d",
        "dictionaries[1].entries_format": "csv",
        "dictionaries[0].source_lang": "de",
        "dictionaries[0].target_lang": "en",
        "dictionaries[0].entries": "a\tb",
    }
    made = client.post("/v3/glossaries", data=form).json()
    assert [each["source_lang"] for each in made["dictionaries"]] == ["de", "fr"]
    place = f"/v3/glossaries/{made['glossary_id']}"
    assert client.patch(place, data={"name": "other"}).json()["name"] == "other"
    terms = {"source_lang": "de", "target_lang": "en", "entries": "e\tf\ng\th"}
    assert client.put(f"{place}/dictionaries", data=terms).json()["entry_count"] == 2
    wrong: list[dict[str, str]] = [{}, {"name": "n"}, {"name": "n", "dictionaries[0].entries": "a\tb"}]
    for each in [*wrong, {"name": "n", "dictionaries[x].entries": "a"}]:
        assert client.post("/v3/glossaries", data=each).status_code == 400


def test_documents_with_the_published_client(
    api: Any, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepl.translator.time", IMPATIENT)
    page = f"<html><body><p>{KNOWN}</p></body></html>"
    (tmp_path / "page.html").write_text(page)
    api.translate_document_from_filepath(tmp_path / "page.html", tmp_path / "out.html", target_lang="EN-GB")
    expected = page.replace(KNOWN, held(client, KNOWN))
    assert (tmp_path / "out.html").read_text() == expected
    out = io.BytesIO()
    status = api.translate_document(page.encode(), out, target_lang="EN-GB", filename="page.html")
    assert (status.done, status.billed_characters, out.getvalue().decode()) == (True, len(KNOWN), expected)
    handle = api.translate_document_upload(b"\x00\x01", filename="../../page.pdf", target_lang="EN-GB")
    failed = api.translate_document_wait_until_done(handle)
    assert not failed.ok
    assert "../../page.pdf: expected a document" in (failed.error_message or "")
    assert "/tmp" not in (failed.error_message or "")
    with pytest.raises(deepl.DeepLException):
        api.translate_document_download(handle, io.BytesIO())
    with pytest.raises(deepl.DeepLException, match="no such document"):
        api.translate_document_get_status(deepl.DocumentHandle(handle.document_id, "0" * 32))
    with pytest.raises(deepl.DeepLException, match="own format"):
        api.translate_document_upload(page, filename="page.html", target_lang="EN-GB", output_format="pdf")


def test_memories_with_the_published_client(api: Any, client: TestClient) -> None:
    [memory] = api.list_translation_memories(page=0, page_size=5)
    assert (memory.name, memory.source_language, memory.target_languages, memory.segment_count) == (
        "small",
        "de",
        ["en"],
        20,
    )
    assert api.get_translation_memory(memory).translation_memory_id == memory.translation_memory_id
    first = api.list_translation_memory_segments(memory, page_size=15)
    rest = api.list_translation_memory_segments(memory, page_size=15, page_cursor=first.next_page_cursor)
    assert (len(first.segments), len(rest.segments), rest.next_page_cursor) == (15, 5, None)
    found = api.list_translation_memory_segments(memory, filter_text=KNOWN.upper())
    assert [each.source_text.strip() for each in found.segments] == [KNOWN]
    assert api.list_translation_memory_segments(memory, filter_text="SATZ", filter_case_sensitive=True).segments == []
    with pytest.raises(deepl.DeepLException, match="cannot be deleted"):
        api.delete_translation_memory(memory)
    client.post("/v1/domains", json={"name": "own", "segments": [{"source": "a", "target": "b"}]})
    [own] = [each for each in api.list_translation_memories() if each.name == "own"]
    api.delete_translation_memory(own)
    assert [each.name for each in api.list_translation_memories()] == ["small"]


def test_a_server_of_other_languages_echoes_what_weblate_tries(client: TestClient) -> None:
    """Trap: Weblate saves its settings only if "test" comes back from English to German."""
    probe: dict[str, Any] = {"text": ["test"], "source_lang": "EN", "target_lang": "DE", "formality": ""}
    assert texts_of(client, **probe) == ["test"]
    other = client.post("/v2/translate", json={**probe, "text": ["tests"]})
    assert (other.status_code, other.json()["message"][:9]) == (400, "Value for")


def test_weblate_waits_for_its_share_and_is_not_turned_away(start_service: StartService, served_store: Path) -> None:
    """Trap: it sends batches of 20, and would not come back for half an hour."""
    client = start_service(stores={"small": served_store}, limits=Limits(queue=20))
    with ThreadPoolExecutor(3) as tools:
        answers = tools.map(lambda n: texts_of(client, text=[f"{n} {KNOWN}", *[KNOWN] * 19]), range(3))
        assert [each[1:] for each in answers] == [[held(client, KNOWN)] * 19] * 3


@pytest.mark.parametrize(
    "problem",
    [
        Problem(503, "ending", "the service is being stopped"),
        DatastoreLockedError("another process"),
    ],
)
def test_no_refusal_that_is_soon_over_turns_tools_away(
    client: TestClient, api: Any, problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap: Weblate leaves a service alone after 401, 403, 429, 456 and 503; DeepL's client tries five times more."""
    service: Any = client.app.state.service  # type: ignore[attr-defined]
    refused: list[int] = []
    translate = service.translate

    async def refuse(*asked: Any) -> Any:
        if len(refused) % 3 < 2:
            refused.append(1)
            raise problem
        return await translate(*asked)

    monkeypatch.setattr(service, "translate", refuse)
    for path, asked in (
        ("/v2/translate", {"text": [KNOWN], "target_lang": "EN-GB"}),
        ("/translate", {"q": KNOWN, "source": "de", "target": "en"}),
    ):
        answer = client.post(path, json=asked)
        assert (answer.status_code, len(answer.json()["message"]) > 3) == (504, True)
    refused.clear()
    monkeypatch.setattr("deepl.http_client._BackoffTimer.BACKOFF_INITIAL", 0.01)
    assert api.translate_text(KNOWN, target_lang="EN-GB").text == held(client, KNOWN)
    assert refused == [1, 1]


def test_the_published_client_tries_once_what_never_can_be(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: it refuses the target EN by itself, and tries again whatever is answered with 429 or 500 and more."""
    with pytest.raises(deepl.DeepLException, match="EN-GB"):
        api.translate_text("Wort", target_lang="EN")
    sent: list[str] = []
    send = requests.Session.send

    def counted(session: requests.Session, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        sent.append(str(request.url))
        return send(session, request, **options)

    monkeypatch.setattr(requests.Session, "send", counted)
    for asked in ({"target_lang": "FR"}, {"translation_memory": "no"}, {"text": "a" * 200_000}):
        with pytest.raises(deepl.DeepLException):
            api.translate_text(**{"text": "Wort", "target_lang": "EN-GB", **asked})
    assert len(sent) == 3


def test_terms_that_weblate_sends(start_service: StartService, served_store: Path, tmp_path: Path) -> None:
    """Trap: it sends them as a table with tabs, wherever the pair is listed, and looks for them by their name."""
    file = tmp_path / "keys.json"
    keys = {role: new_key(file, role, role) for role in ("write", "translate")}
    client = start_service(stores={"small": served_store}, keys=file)
    header = {role: {"Authorization": f"DeepL-Auth-Key {key}"} for role, key in keys.items()}
    pairs = {role: client.get("/v2/glossary-language-pairs", headers=header[role]).json() for role in keys}
    assert pairs["translate"] == {"supported_languages": []}
    assert pairs["write"] == {"supported_languages": [{"source_lang": "de", "target_lang": "en"}]}
    name = "weblate:1:DE:EN:0123456789abcdef"
    terms = {"name": name, "source_lang": "DE", "target_lang": "EN", "entries": "Wort\txy\n", "entries_format": "tsv"}
    assert client.post("/v2/glossaries", json=terms, headers=header["write"]).status_code == 201
    listed = client.get("/v2/glossaries", headers=header["write"]).json()["glossaries"]
    assert [each["name"] for each in listed] == [name]
    asked = {"text": ["ein Wort"], "source_lang": "DE", "target_lang": "EN", "glossary_id": listed[0]["glossary_id"]}
    made = client.post("/v2/translate", json=asked, headers=header["write"]).json()
    assert "xy" in made["translations"][0]["text"].lower()


def test_placeholders_and_tags_are_kept(client: TestClient) -> None:
    """Trap: Weblate sends placeholders as elements that are to be ignored, and text that is escaped."""
    text = 'Wort <x id="3"></x> und &lt;mehr&gt; &amp; <b>noch <y>Name</y> eins</b>'
    [made] = texts_of(client, text=[text], tag_handling="xml", ignore_tags="x,y")
    for kept in ('<x id="3"></x>', "<y>Name</y>", "<b>", "</b>"):
        assert made.count(kept) == 1
    assert made.index("<b>") < made.index("</b>")
    page = f"<!DOCTYPE html>\n<p>{KNOWN}</p>\n<script>a < b</script>"
    [made] = texts_of(client, text=page, tag_handling="html")
    assert re.fullmatch("<!DOCTYPE html>\n<p>[Ll]ine 3 [yes ]+</p>\n<script>a < b</script>", made)


def test_forms_keys_and_errors(start_service: StartService, served_store: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key, reader = new_key(file, "tool", "write", ["small"]), new_key(file, "reader", "translate")
    client = start_service(stores={"small": served_store}, keys=file)
    form = {"text": ["Wort", "noch eins"], "target_lang": "EN-GB"}
    for header in (f"DeepL-Auth-Key {key}", f"Bearer {key}"):
        answer = client.post("/v2/translate", data=form, headers={"Authorization": header})
        assert len(answer.json()["translations"]) == 2
    none = client.post("/v2/translate", data=form)
    assert (none.status_code, "message" in none.json()) == (403, True)
    mine = {"Authorization": f"DeepL-Auth-Key {key}"}
    others = {"Authorization": f"DeepL-Auth-Key {reader}"}
    assert client.post("/d/base/v2/translate", data=form, headers=mine).status_code == 403
    made = {"name": "n", "source_lang": "de", "target_lang": "en", "entries": "a\tb"}
    assert client.post("/v2/glossaries", json=made, headers=others).status_code == 403
    number = client.post("/v2/glossaries", json=made, headers=mine).json()["glossary_id"]
    assert client.get(f"/v2/glossaries/{number}", headers=others).status_code == 404
    for broken in (b"{", b"[]", b'{"text": 1}', b'{"text": ["a"]}'):
        kind = {"content-type": "application/json"}
        assert client.post("/v2/translate", content=broken, headers={**mine, **kind}).status_code == 400
    for charset in ("punycode", "idna", "rot13", "none-such"):
        kind = {"content-type": f"multipart/form-data; boundary=x; charset={charset}"}
        answer = client.post("/v2/translate", content=b"--x--\r\n", headers={**mine, **kind})
        assert answer.status_code == 400
        assert f"expected a form in UTF-8, found the charset '{charset}'" in answer.json()["message"]


def test_memories_are_taken_and_sent_with_the_published_client(
    api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "start_process", warm.Popen)
    monkeypatch.setattr("deepl.deepl_client.time", IMPATIENT)
    [memory] = api.list_translation_memories()
    assert api.export_translation_memory_to_filepath(memory, tmp_path / "out.tmx").ok
    ready = api.wait_until_translation_memory_job_done(api.create_translation_memory_export(memory).job_id)
    assert b"".join(api.download_translation_memory_export(ready)).count(b"<tu>") == 20
    assert (tmp_path / "out.tmx").read_text().count("<tu>") == 20
    made = api.import_translation_memory_from_filepath(tmp_path / "out.tmx", display_name="Mein Bestand: 1")
    [own] = [each for each in api.list_translation_memories() if each.name == "mein-bestand-1"]
    assert (made.result.translation_memory_id, own.segment_count) == (own.translation_memory_id, 20)
    known = api.translate_text(KNOWN, target_lang="EN-GB", translation_memory=own)
    assert known.text == api.translate_text(KNOWN, target_lang="EN-GB", translation_memory=memory).text
    announced = api.create_translation_memory_import("broken.tmx", 3)
    assert api.get_translation_memory_job(announced.job_id).result.status == "awaiting_input"
    api.upload_translation_memory_file(announced, b"<tm")
    failed = api.wait_until_translation_memory_job_done(announced.job_id)
    assert not failed.ok
    assert "broken.tmx" in failed.result.error_message
    with pytest.raises(deepl.DeepLException, match="already been sent"):
        api.upload_translation_memory_file(announced, b"<tm")
    with pytest.raises(deepl.DeepLException, match="no such job"):
        api.get_translation_memory_job("00000000-0000-0000-0000-000000000000")
