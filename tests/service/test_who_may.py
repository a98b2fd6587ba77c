"""Who may do what: every route by no key, by each role, by a key of another domain. A route without a role fails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.routing import BaseRoute

from knnmt.service import child_process
from knnmt.service.access import Access, Role, new_key
from knnmt.service.config import Limits
from support import warm
from support.route_table import CODES, DEEPL, FILE, KNOWN, LANGUAGES, NONE, OTHER, SECRET, TABLE, World, number
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
BELOW: dict[Role, Role] = {"write": "translate", "admin": "write"}


@pytest.fixture
def world(start_service: StartService, served_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The owner may do everything; the intruder is an admin, too, but of another domain alone."""
    monkeypatch.setattr(child_process, "start_process", warm.Popen)
    file = tmp_path / "keys.json"
    keys = {role: new_key(file, role, role) for role in ("translate", "write", "admin")}
    keys |= {"owner": new_key(file, "owner", "admin"), "intruder": new_key(file, "intruder", "admin", [OTHER])}
    limits = Limits(errors=1_000_000)  # nobody waits for hundreds of errors
    client = start_service(stores={SECRET: served_store, OTHER: served_store}, keys=file, default=SECRET, limits=limits)
    return World(client, keys)


def every_route(routes: Iterable[BaseRoute]) -> Iterator[str]:
    """As the table names them. Some versions of FastAPI keep routers that are included as they are."""
    for each in routes:
        if hasattr(each, "original_router"):
            yield from every_route(each.original_router.routes)
        else:
            for method in getattr(each, "methods", None) or ():
                yield f"{method} {getattr(each, 'path', '?')}"


def test_every_route_is_in_the_table(world: World) -> None:
    found = sorted(every_route(world.client.app.routes))  # type: ignore[attr-defined]
    assert found == sorted([*TABLE, "GET /openapi.json", "HEAD /openapi.json"])


def test_no_key_opens_nothing_but_what_is_for_everybody(world: World) -> None:
    wrong = {}
    for name, route in TABLE.items():
        answer = world.ask(name, None)
        is_refused = answer.status_code in (401, 403) and answer.json()["code"] == "no_key"
        if is_refused != (route.role is not None):
            wrong[name] = answer.text[:200]
    assert not wrong


def test_nothing_of_a_body_is_read_before_the_key_is_asked(world: World) -> None:
    """Some clients can send their key only in a small body; files of a form are not read there."""
    with_keys_in_bodies = re.compile(r"POST /(translate|detect|suggest|M[Tt]RestService/\w+|apy/translate)")
    read: list[str] = []

    def body() -> Iterator[bytes]:
        read.append(name)
        yield b"{}"

    def refused(key: str | None) -> bool:
        address = re.sub(r"\{\w+(:\w+)?\}", SECRET, name.split()[1])
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
        answer = world.client.request(name.split()[0], address, headers=headers, content=body())
        return answer.status_code in (401, 403)

    asked = 0
    for name, route in TABLE.items():
        if route.role is None or not name.startswith(("POST", "PUT", "PATCH")):
            continue
        asked += 1
        assert refused("wrong"), name
        assert with_keys_in_bodies.fullmatch(name) or refused(None), name
        below = BELOW.get(route.role)
        assert with_keys_in_bodies.fullmatch(name) or not below or refused(world.keys[below]), name
        if "{domain}" in name:
            assert refused(world.keys["intruder"]), name
    assert asked > 30
    assert read == []


def test_files_of_a_form_are_not_read_where_the_key_may_be_in_the_body(world: World) -> None:
    files = {"file": ("a.txt", b"x" * (2 << 20))}
    refused = world.client.post("/translate", data={**LANGUAGES, "api_key": world.keys["owner"]}, files=files)
    assert refused.status_code == 400
    assert "Too many files" in refused.json()["message"]
    key = {"api_key": world.keys["owner"]}
    assert world.client.post("/translate_file", data={**LANGUAGES, **key}, files=files).status_code == 403
    assert world.client.post("/translate_file", params=key, data=LANGUAGES, files={"file": ("a.json", FILE)}).is_success


def test_a_role_opens_what_it_says_and_no_more(world: World) -> None:
    """What a thing's owner alone sees is asked for with the owner's own key."""
    wrong = {}
    for name, route in TABLE.items():
        if route.role is None:
            continue
        if below := BELOW.get(route.role):
            refused = world.ask(name, below)
            if (refused.status_code, refused.json()["code"]) != (403, "forbidden"):
                wrong[f"{name} with {below}"] = refused.text[:200]
        done = world.ask(name, "owner" if route.thing else route.role)
        if done.status_code >= 400 and done.status_code != route.ends:
            wrong[name] = f"{done.status_code} {done.text[:200]}"
    assert not wrong


def test_a_key_of_another_domain_opens_nothing_and_learns_nothing(world: World) -> None:
    """By the path, a parameter, the id of something: a domain that is not there is refused in the same words."""
    wrong: dict[str, object] = {}
    for name, route in TABLE.items():
        if route.by in ("path", "body"):
            answers = [_shown(world.ask(name, "intruder", domain), domain) for domain in (SECRET, NONE)]
            if answers[0] != answers[1] or answers[0][0] not in (403, 404):
                wrong[f"{name} by {route.by}"] = answers
        if route.by == "prefix" and route.thing and route.role is not None:
            answer = world.ask(name, "intruder")
            if answer.status_code != 404:
                wrong[f"{name} by the id of another"] = answer.text[:200]
        if route.by and route.role is not None:
            answers = [_shown(world.ask(name, "intruder", prefix=domain), domain) for domain in (SECRET, NONE)]
            if answers[0] != answers[1] or answers[0][0] != 403:
                wrong[f"{name} by the prefix"] = answers
    assert not wrong


def test_another_key_of_the_same_domain_has_nothing_of_what_a_key_sent(world: World) -> None:
    """But jobs, which are the domain's."""
    mine = [name for name, route in TABLE.items() if route.role is not None and route.thing not in ("", "job")]
    assert len(mine) >= 14
    for name in mine:
        answer = world.ask(name, "write")
        assert (answer.status_code, answer.json()["code"][:8]) == (404, "unknown_"), name


def test_no_failure_of_ours_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a stack trace nor what the error says, which may be a place on disk or a text of somebody."""

    def fail(*_asked: object) -> None:
        raise RuntimeError("/a/secret/place")

    monkeypatch.setattr(Access, "caller", fail)
    told = World(TestClient(world.client.app, "http://127.0.0.1", raise_server_exceptions=False), world.keys)
    for name, route in TABLE.items():
        if route.role is not None and not route.thing:
            answer = told.ask(name, "owner")
            assert answer.status_code == 500, name
            assert answer.json() == {"code": "internal", "message": "the service failed; its log says why"}


def _shown(answer: Any, domain: str) -> tuple[int, str]:
    """An answer without the name that was asked for."""
    return answer.status_code, answer.text.replace(domain, "?").replace(number(domain), "?")


def test_lists_have_only_what_the_key_may_see(world: World) -> None:
    for thing in (world.job, world.document, world.glossary, world.export):
        thing()
    lists = [
        name for name, route in TABLE.items() if name.startswith("GET") and route.by == "prefix" and "{" not in name
    ]
    assert len(lists) >= 15
    for name in lists:
        answer = world.ask(name, "intruder", prefix=OTHER)
        assert answer.status_code == 200, name
        assert not re.search(rf"{SECRET}|terms|{number(SECRET)}", answer.text), name
    assert SECRET in world.ask("GET /v1/domains", "owner").text


@pytest.mark.parametrize("prefix", [None, OTHER])
def test_the_default_domain_is_no_way_round(world: World, prefix: str | None) -> None:
    """A key of another domain that names none is refused, and not told what the default is called."""
    for name, route in TABLE.items():
        if route.by == "body" and name not in ("POST /v1/domains", "POST /v3/translation_memories/import"):
            answer = world.ask(name, "intruder", prefix=prefix)
            assert answer.status_code == (403 if prefix is None else answer.status_code), name
            assert SECRET not in answer.text, name
            assert prefix is None or answer.status_code < 400, (name, answer.text)


@pytest.mark.parametrize("open_to_all", [True, False])
def test_an_address_of_no_domain_is_refused_in_every_dialect(
    start_service: StartService, served_store: Path, world: World, open_to_all: bool
) -> None:
    """Where there are keys, whoever has none is told nothing of domains."""
    if open_to_all:
        world = World(start_service(stores={SECRET: served_store}), {})
    for name, route in TABLE.items():
        if not route.by or (route.role is None and not open_to_all) or (route.thing and open_to_all):
            continue
        answer = world.ask(name, None if open_to_all else "admin", prefix=NONE)
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_domain"), name
        assert NONE in answer.json()["message"]


def test_an_address_with_a_secret_ends_with_its_key(world: World, tmp_path: Path) -> None:
    """Clients send no key to such an address: a key that is taken out takes them along."""
    names = [name for name, route in TABLE.items() if route.role is None and route.thing not in ("", "script")]
    assert len(names) == 3
    places = [getattr(world, TABLE[name].thing)() for name in names]
    file = tmp_path / "keys.json"
    file.write_text(file.read_text().replace('"owner"', '"gone"'))
    for name, place in zip(names, places, strict=True):
        method, template = name.split(" ")
        answer = world.client.request(method, re.sub(r"\{\w+\}", place, template), content=b"a\tb\n")
        assert (answer.status_code, answer.json()["code"]) == (403, "unknown_key"), name


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("GET /apy/translate", {"params": {"langpair": "de|en", "q": KNOWN, "key": "KEY"}}),
        ("GET /translate", {"params": {**LANGUAGES, "q": KNOWN, "api_key": "KEY"}}),
        ("POST /suggest", {"json": {**LANGUAGES, "q": "a", "s": "b", "api_key": "KEY"}}),
        ("GET /MTRestService/Translate", {"params": {**CODES, "input": KNOWN, "tokenCode": "KEY"}}),
        ("GET /tmserver/languages/", {"params": {"key": "KEY"}}),
        (
            "POST /v2/translate",
            {"json": {**DEEPL, "text": [KNOWN]}, "headers": {"Authorization": "DeepL-Auth-Key KEY"}},
        ),
    ],
)
def test_keys_that_come_by_a_dialects_own_means_are_held_to_their_domains(
    world: World, name: str, sent: dict[str, Any]
) -> None:
    method, path = name.split(" ")
    for key, domain, status in (("intruder", SECRET, 403), ("intruder", OTHER, 200), ("owner", SECRET, 200)):
        told: Any = {
            at: {
                each: str(value).replace("KEY", world.keys[key]) if "KEY" in str(value) else value
                for each, value in of.items()
            }
            for at, of in sent.items()
        }
        assert world.client.request(method, f"/d/{domain}{path}", **told).status_code == status
