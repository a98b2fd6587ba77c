"""Every route of the service beside the role that it needs, a request that it answers, and the domain that it names."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fastapi.testclient import TestClient

from knnmt.service.access import Role
from knnmt.service.dialects.deepl import memory_id
from knnmt.service.domains import Domain

SECRET, OTHER, NONE = "small", "other", "nowhere"  # the owner's domain, the intruder's, and one that is not there
KNOWN = "Satz 3 ja ja ja"
FILE = b'{"a": "Satz 1 ja"}'
PAIRS = {"segments": [{"source": "a", "target": "b"}]}
CODES = {"srcLangCode": "de", "trgLangCode": "en"}
LANGUAGES = {"source": "de", "target": "en"}
DEEPL = {"source_lang": "de", "target_lang": "en"}
TERMS = {**DEEPL, "entries": "Datei\tfile"}


def number(domain: str) -> str:
    return memory_id(Domain(domain, None))


class World:
    """A service with a domain of an owner and one of an intruder, and what the owner sends to it."""

    document_key = ""

    def __init__(self, client: TestClient, keys: dict[str, str]) -> None:
        self.client, self.keys = client, keys

    def ask(self, name: str, key: str | None, domain: str | None = None, prefix: str | None = None) -> Any:
        """Ask a route of the table. domain: by the route's own means; prefix: in the address"""
        method, template = name.split(" ", 1)
        route = TABLE[name]
        own = domain or SECRET
        plain = {
            "domain": own,
            "memory": number(own),
            "source": "de",
            "target": "en",
            "text": KNOWN,
            "_rest": "x",
            "correction": "x",
        }

        def filled(found: re.Match[str]) -> str:
            if not route.thing:
                return plain[found[1]]
            is_known = route.role is None or key is not None  # whoever has no key is told so first
            return str(getattr(self, route.thing)()) if is_known else "x"

        path = re.sub(r"\{(\w+)(?::\w+)?\}", filled, template)
        address = path if prefix is None else f"/d/{prefix}{path}"
        return self.send(key, method, address, **route.sent(self, domain))

    def send(self, key: str | None, method: str, address: str, **sent: Any) -> Any:
        headers = {} if key is None else {"Authorization": f"Bearer {self.keys[key]}"}
        return self.client.request(method, address, headers=headers, **sent)

    # What the owner makes ---------------------------------------------------------------------------------------------

    def owner(self, method: str, address: str, **sent: Any) -> Any:
        answer = self.send("owner", method, address, **sent)
        assert answer.status_code < 400, answer.text
        return answer.json()

    def job(self) -> str:
        sent = self.owner("POST", f"/v1/domains/{SECRET}/memories", params={"name": "a.tsv"}, content=b"a\tb\n")
        self._wait(f"/v1/jobs/{sent['id']}")
        return str(sent["id"])

    def document(self) -> str:
        sent = self.owner("POST", "/v1/documents", params={"name": "a.json", "domain": SECRET}, content=FILE)
        self._wait(f"/v1/documents/{sent['id']}")
        return str(sent["id"])

    def _wait(self, address: str) -> None:
        while self.owner("GET", address)["state"] in ("waiting", "running"):
            time.sleep(0.01)

    def document_id(self) -> str:
        whole = self.document()
        self.document_key = whole[32:]
        return whole[:32]

    def file(self) -> str:
        sent = self.owner("POST", f"/d/{SECRET}/translate_file", data=LANGUAGES, files={"file": ("a.json", FILE)})
        return str(sent["translatedFileUrl"]).rpartition("/")[2]

    def glossary(self) -> str:
        return str(self.owner("POST", "/v2/glossaries", json={"name": "terms", **TERMS})["glossary_id"])

    def export(self) -> str:
        return str(self.owner("POST", f"/v3/translation_memories/{number(SECRET)}/export")["job_id"])

    def download(self) -> str:
        told = self.owner("GET", f"/v3/translation_memories/jobs/{self.export()}")
        return str(told["results"][0]["download_url"]).rpartition("/")[2]

    def upload(self) -> str:
        told = self.owner("POST", "/v3/translation_memories/import", json=announced(SECRET))
        return str(told["upload_url"]).rpartition("/")[2]

    def script(self) -> str:
        return "main.js"


def announced(domain: str) -> dict[str, Any]:
    return {"source_file": {"file_name": "a.tsv", "content_length": 4}, "parameters": {"display_name": domain}}


def nothing(_world: World, _domain: str | None) -> dict[str, Any]:
    return {}


def always(**sent: Any) -> Callable[[World, str | None], dict[str, Any]]:
    """What a route is sent that names no domain by means of its own."""
    return lambda _world, _domain: sent


def naming(parameter: str, told: dict[str, Any], at: str = "json", told_by: Callable[[str], str] = str) -> Any:
    """What a route is sent in which a parameter names the domain."""

    def sent(_world: World, domain: str | None) -> dict[str, Any]:
        return {at: told | ({} if domain is None else {parameter: told_by(domain)})}

    return sent


def with_file(**told: str) -> Callable[[World, str | None], dict[str, Any]]:
    def sent(_world: World, domain: str | None) -> dict[str, Any]:
        memory = {} if domain is None or "source" in told else {"translation_memory_id": number(domain)}
        return {"data": told | memory, "files": {"file": ("a.json", FILE)}}

    return sent


def with_secret(world: World, _domain: str | None) -> dict[str, Any]:
    return {"data": {"document_key": world.document_key}}


@dataclass(frozen=True)
class Route:
    """role: that it needs; None lets in everybody, with no key

    sent: to it, for a domain; thing: of the owner, whose id is in the path
    by: how it names a domain, "path", "body" or "prefix" alone; "" where it says nothing of any
    ends: the status of what it does, where that is no success
    """

    role: Role | None
    sent: Callable[[World, str | None], dict[str, Any]] = nothing
    by: str = "prefix"
    thing: str = ""
    ends: int = 0


def opus_cat() -> Iterator[tuple[str, Route]]:
    text = naming("modelTag", {**CODES, "input": KNOWN}, "params")
    posted = naming("modelTag", {**CODES, "input": KNOWN}, "data")
    pair = naming("modelTag", {**CODES, "source": "a", "target": "b"}, "data")
    pairs = naming("modelTag", {**CODES, "sources": ["a"], "targets": ["b"]}, "data")
    for place in ("/MTRestService", "/MtRestService"):
        for name in ("Translate", "TranslateStream", "TranslateJson", "BatchTranslate"):
            yield f"GET {place}/{name}", Route("translate", text, by="body")
        for name in ("TranslatePost", "BatchTranslate", "PreOrderBatch"):
            yield f"POST {place}/{name}", Route("translate", posted, by="body")
        yield f"GET {place}/ListSupportedLanguagePairs", Route("translate")
        yield f"GET {place}/GetLanguagePairModelTags", Route("translate", always(params=CODES))
        yield f"GET {place}/CheckModelStatus", Route("translate", naming("modelTag", CODES, "params"), by="body")
        yield f"GET {place}/Login", Route(None)
        yield f"POST {place}/StoreTranslation", Route("write", pair, by="body")
        yield f"POST {place}/BatchStoreTranslation", Route("write", pairs, by="body")


TEXTS = naming("domain", {"texts": [KNOWN]})
TABLE: dict[str, Route] = {
    # our own
    "POST /v1/translate": Route("translate", TEXTS, by="body"),
    "POST /v1/explain": Route("translate", TEXTS, by="body"),
    "POST /v1/match": Route("translate", TEXTS, by="body"),
    "POST /v1/sentences": Route("translate", always(json={"text": "a"})),
    "GET /v1/domains": Route("translate"),
    "GET /v1/domains/{domain}": Route("translate", by="path"),
    "POST /v1/domains": Route("admin", lambda _, domain: {"json": {"name": domain or "made", **PAIRS}}, by="body"),
    "DELETE /v1/domains/{domain}": Route("admin", by="path", ends=409),  # it was configured
    "GET /v1/domains/{domain}/segments": Route("translate", always(params={"source": KNOWN}), by="path"),
    "POST /v1/domains/{domain}/segments": Route("write", always(json=PAIRS), by="path"),
    "PUT /v1/domains/{domain}/segments": Route("write", always(json=PAIRS), by="path"),
    "DELETE /v1/domains/{domain}/segments": Route("write", always(params={"source": "a"}), by="path"),
    "GET /v1/domains/{domain}/concordance": Route("translate", always(params={"words": KNOWN}), by="path"),
    "GET /v1/domains/{domain}/corrections": Route("translate", by="path"),
    "DELETE /v1/domains/{domain}/corrections/{correction}": Route("write", by="path", ends=404),  # there is none
    "POST /v1/domains/{domain}/memories": Route(
        "write", always(params={"name": "a.tsv"}, content=b"a\tb\n"), by="path"
    ),
    "GET /v1/jobs": Route("translate"),
    "GET /v1/jobs/{job}": Route("translate", thing="job"),
    "DELETE /v1/jobs/{job}": Route("write", thing="job"),
    "POST /v1/documents": Route(
        "translate",
        lambda _, domain: {"params": {"domain": domain, "name": "a.json"} if domain else {}, "content": FILE},
        by="body",
    ),
    "GET /v1/documents/{document}": Route("translate", thing="document"),
    "GET /v1/documents/{document}/units": Route("translate", thing="document"),
    "GET /v1/documents/{document}/content": Route("translate", thing="document"),
    "DELETE /v1/documents/{document}": Route("translate", thing="document"),
    "POST /v1/glossaries": Route(
        "write", always(params={"source_language": "de", "target_language": "en"}, content=b"Datei\tfile\n")
    ),
    "GET /v1/glossaries": Route("translate"),
    "GET /v1/glossaries/{glossary}": Route("translate", thing="glossary"),
    "DELETE /v1/glossaries/{glossary}": Route("write", thing="glossary"),
    "GET /health": Route(None, by=""),
    "GET /ready": Route(None, by=""),
    "GET /metrics": Route("translate"),
    "GET /": Route(None, by=""),
    "GET /page/settings.json": Route(None, by=""),
    "GET /page/{name}": Route(None, by="", thing="script"),
    # DeepL
    "POST /v2/translate": Route(
        "translate", naming("translation_memory_id", {**DEEPL, "text": [KNOWN]}, told_by=number), by="body"
    ),
    "GET /v2/languages": Route("translate"),
    "GET /v2/usage": Route("translate"),
    "GET /v3/style_rules": Route("translate"),
    "POST /v3/style_rules": Route("translate", ends=404),
    **{f"{each} /v3/style_rules/{{_rest:path}}": Route("translate", ends=404) for each in ("GET", "PUT", "PATCH")},
    **{f"{each} /v3/style_rules/{{_rest:path}}": Route("translate", ends=404) for each in ("POST", "DELETE")},
    "POST /v2/write/{_rest:path}": Route("translate", ends=404),
    "GET /v2/glossary-language-pairs": Route("translate"),
    "POST /v2/glossaries": Route("write", always(json={"name": "terms", **TERMS})),
    "GET /v2/glossaries": Route("translate"),
    "GET /v2/glossaries/{glossary_id}": Route("translate", thing="glossary"),
    "GET /v2/glossaries/{glossary_id}/entries": Route("translate", thing="glossary"),
    "DELETE /v2/glossaries/{glossary_id}": Route("write", thing="glossary"),
    "POST /v3/glossaries": Route("write", always(json={"name": "terms", "dictionaries": [TERMS]})),
    "GET /v3/glossaries": Route("translate"),
    "GET /v3/glossaries/{glossary_id}": Route("translate", thing="glossary"),
    "PATCH /v3/glossaries/{glossary_id}": Route("write", always(json={"name": "more"}), thing="glossary"),
    "GET /v3/glossaries/{glossary_id}/entries": Route("translate", always(params=DEEPL), thing="glossary"),
    "PUT /v3/glossaries/{glossary_id}/dictionaries": Route("write", always(json=TERMS), thing="glossary"),
    "DELETE /v3/glossaries/{glossary_id}/dictionaries": Route("write", always(params=DEEPL), thing="glossary"),
    "DELETE /v3/glossaries/{glossary_id}": Route("write", thing="glossary"),
    "POST /v2/document": Route("translate", with_file(**DEEPL), by="body"),
    "POST /v2/document/{document_id}": Route("translate", with_secret, thing="document_id"),
    "POST /v2/document/{document_id}/result": Route("translate", with_secret, thing="document_id"),
    "GET /v3/translation_memories": Route("translate"),
    "GET /v3/translation_memories/{memory}": Route("translate", by="path"),
    "DELETE /v3/translation_memories/{memory}": Route("admin", by="path", ends=400),  # it was configured
    "GET /v3/translation_memories/{memory}/segments": Route("translate", by="path"),
    "POST /v3/translation_memories/import": Route(
        "admin", lambda _, domain: {"json": announced(domain or SECRET)}, by="body"
    ),
    "PUT /v3/translation_memories/files/{token}": Route(None, always(content=b"a\tb\n"), thing="upload"),
    "POST /v3/translation_memories/{memory}/export": Route("translate", by="path"),
    "GET /v3/translation_memories/jobs/{job_id}": Route("translate", thing="export"),
    "GET /v3/translation_memories/files/{token}": Route(None, thing="download"),
    # LibreTranslate
    "GET /translate": Route("translate", always(params={**LANGUAGES, "q": KNOWN})),
    "POST /translate": Route("translate", always(json={**LANGUAGES, "q": KNOWN})),
    "POST /detect": Route("translate", always(json={"q": KNOWN})),
    "GET /languages": Route(None),
    "GET /frontend/settings": Route(None),
    "POST /suggest": Route("write", always(json={**LANGUAGES, "q": "a", "s": "b"})),
    "POST /translate_file": Route("translate", with_file(**LANGUAGES)),
    "GET /download_file/{name}": Route(None, thing="file"),
    # OPUS-CAT
    **dict(opus_cat()),
    # Apertium
    "GET /apy/listPairs": Route("translate"),
    "GET /apy/translate": Route("translate", always(params={"langpair": "de|en", "q": KNOWN})),
    "POST /apy/translate": Route("translate", always(data={"langpair": "de|en", "q": KNOWN})),
    # tmserver
    "GET /tmserver/languages/": Route("translate"),
    "GET /tmserver/{source}/{target}/unit/{text:path}": Route("translate"),
}
