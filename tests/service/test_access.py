"""Keys, hosts, sites and limits: who is let in, and what is said to the others."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from knnmt.errors import KnnmtError, SettingError
from knnmt.service.access import Access, new_key, read_keys
from knnmt.service.config import Limits, ServiceConfig, read_config
from knnmt.service.problems import Problem
from support.route_table import TABLE
from support.services import StartService

PAIR = {"segments": [{"source": "a", "target": "b"}]}
TEXT = {"texts": ["a"]}
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


def bearing(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_keys_open_what_they_say(start_service: StartService, served_store: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    reader, writer, admin, base = (
        new_key(file, "reader", "translate"),
        new_key(file, "writer", "write", ["small"]),
        new_key(file, "boss", "admin"),
        new_key(file, "bare", "translate", ["base"]),
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not any(key in file.read_text() for key in (reader, writer, admin))
    client = start_service(stores={"small": served_store}, keys=file)

    def status(key: str | None, method: str, path: str, **sent: object) -> int:
        headers = {} if key is None else bearing(key)
        answer = client.request(method, path, headers=headers, **sent)  # type: ignore[arg-type]
        if answer.status_code >= 400:
            assert set(answer.json()) >= {"code", "message"}
        return answer.status_code

    for key, expected in ((None, 401), ("wrong", 401), (reader, 200), (writer, 200), (admin, 200), (base, 403)):
        assert status(key, "POST", "/v1/translate", json=TEXT) == expected
    for key, expected in ((None, 401), (reader, 403), (writer, 201), (admin, 201), (base, 403)):
        assert status(key, "POST", "/v1/domains/small/segments", json=PAIR) == expected
    for key, expected in ((None, 401), (writer, 403), (admin, 201)):
        assert status(key, "POST", "/v1/domains", json={"name": "own", **PAIR}) == expected
    assert status(writer, "POST", "/v1/domains/own/segments", json=PAIR) == 403
    assert status(None, "GET", "/health") == 200
    seen = client.get("/v1/domains", headers=bearing(base)).json()["domains"]
    assert [each["name"] for each in seen] == ["base"]

    keys = json.loads(file.read_text())
    keys["keys"] = [each for each in keys["keys"] if each["name"] != "reader"]
    file.write_text(json.dumps(keys))
    assert status(reader, "POST", "/v1/translate", json=TEXT) == 401
    assert status(admin, "POST", "/v1/translate", json=TEXT) == 200


def test_a_key_can_be_used_so_often(start_service: StartService, tmp_path: Path) -> None:
    key = new_key(tmp_path / "keys.json", "slow", "translate", per_minute=2)
    client = start_service(keys=tmp_path / "keys.json")
    answers = [client.get("/v1/domains", headers=bearing(key)) for _ in range(3)]
    assert [each.status_code for each in answers] == [200, 200, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 30


def test_every_key_is_compared_whichever_is_presented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In constant time, and as hashes: nobody learns from the time that an answer takes how much of a key is right."""
    file, seen = tmp_path / "keys.json", list[tuple[str, str]]()
    keys = [new_key(file, name, "translate") for name in ("first", "second", "third")]
    hashes = [key.sha256 for key in read_keys(file)]
    assert hashes == [hashlib.sha256(key.encode()).hexdigest() for key in keys]
    access = Access(file)

    def compared(held: str, presented: str) -> bool:
        seen.append((held, presented))
        return hmac.compare_digest(held, presented)

    monkeypatch.setattr("knnmt.service.access.hmac", SimpleNamespace(compare_digest=compared))
    for number, key in enumerate(keys):
        assert access.caller(key).name == ("first", "second", "third")[number]
    for wrong in (keys[0][:-1], keys[0] + "x", hashes[0], "\ud800", "ä" * 10_000):
        with pytest.raises(Problem, match="unknown"):
            access.caller(wrong)
    assert [held for held, _ in seen] == hashes * 8
    assert all(len(presented) == 64 and presented not in keys for _, presented in seen)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"keys": [{}]}', '{"keys": [{"name": "a", "sha256": "12", "role": "admin"}]}']
    + [json.dumps({"keys": [{"name": "a", "sha256": "0" * 64, "role": role}]}) for role in ("root", None)],
)
def test_a_file_that_is_no_keys_lets_nobody_in(tmp_path: Path, content: str) -> None:
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(KnnmtError, match=r"key"):
        read_keys(tmp_path / "keys.json")


def test_other_machines_need_keys(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        assert ServiceConfig(host=host).is_loopback
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(SettingError, match="serve-key"):
            ServiceConfig(host=host)
        assert ServiceConfig(host=host, open_to_all=True)
        assert ServiceConfig(host=host, keys=tmp_path / "keys.json")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:8500"}, 200),
        ({"host": "[::1]:8500"}, 200),
        ({"host": "rebound.example"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://127.0.0.1"}, 200),
        ({"origin": "https://other.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999", "host": "127.0.0.1:8500"}, 403),
        ({"origin": "http://127.0.0.1:8500", "host": "127.0.0.1:8500"}, 200),
        ({"origin": "http://127.0.0.1:8500"}, 200),  # a proxy may leave the port out
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
    ],
)
def test_pages_of_other_sites_are_refused(client: TestClient, headers: dict[str, str], status: int) -> None:
    answer = client.post("/v1/translate", json=TEXT, headers=headers)
    assert answer.status_code == status
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_of_another_site_opens_the_page_and_does_not_translate(client: TestClient, site: str) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for page in ("/", "/d/small/", "/page/main.js", "/page/settings.json", "/openapi.json"):
        assert client.get(page, headers=headers).status_code == 200, page
    for name, route in TABLE.items():
        method, path = name.split(" ", 1)
        of_the_page = path == "/" or path.startswith("/page/")
        if method == "GET" and not of_the_page and path not in ("/health", "/ready", "/metrics"):
            answer = client.get(re.sub(r"\{.*?\}", "x", path), headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "other_site"), (name, route)
    typed = {**headers, "sec-fetch-site": "none"}
    assert client.get("/translate", params={"q": "a", "source": "de", "target": "en"}, headers=typed).status_code == 200


def test_bodies_are_counted(start_service: StartService) -> None:
    client = start_service(limits=Limits(body_bytes=100))
    much = b'{"texts": ["' + b"a" * 200 + b'"]}'
    kind = {"content-type": "application/json"}
    told = client.post("/v1/translate", content=much, headers=kind)
    untold = client.post("/v1/translate", content=iter([much[:50], much[50:]]), headers=kind)
    assert [each.status_code for each in (told, untold)] == [413, 413]
    assert untold.json()["code"] == "too_large"
    plain = client.post("/v1/translate", content=b'{"texts": ["a"]}', headers={"content-type": "text/plain"})
    assert plain.status_code == 422  # what pages may send without asking is no JSON
    both = {**kind, "content-length": "5", "transfer-encoding": "chunked"}  # a proxy may take the rest for a request
    assert client.post("/v1/translate", content=b"{}   ", headers=both).json()["code"] == "bad_request"


def test_wrong_addresses_and_methods_are_told_what_there_is(client: TestClient) -> None:
    nothing, method = client.get("/v1/nothing"), client.get("/v1/translate")
    assert (nothing.status_code, nothing.json()["code"]) == (404, "not_found")
    assert "/openapi.json" in nothing.json()["message"]
    assert (method.status_code, method.headers["allow"]) == (405, "POST")
    assert method.json()["message"].startswith("expected POST at this address, found GET")


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"texts": ["\xe4"]}', b'{"texts": [' + b"9" * 5000 + b"]}", b"{"])
def test_a_body_that_is_no_json_is_told_what_is_expected(client: TestClient, body: bytes) -> None:
    answer = client.post("/v1/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert "JSON" in answer.json()["message"]


def test_settings_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text('port = 9000\nkeys = "k.json"\n[stores]\nlaw = "law.store"\n[limits]\ntexts = 5\n')
    read = read_config(file, {"port": 1, "stores": {"own": Path("x")}})
    assert (read.port, read.keys, read.limits.texts) == (1, tmp_path / "k.json", 5)
    assert read.stores == {"law": tmp_path / "law.store", "own": Path("x")}
    assert read.default_domain == "base"
    for wrong in ("prot = 1", 'port = "x"', "open_to_all = 1", "[limits]\ntexts = 0", "[stores]\nbase = 'x'", "= 1"):
        file.write_text(wrong)
        with pytest.raises(SettingError):
            read_config(file, {})
