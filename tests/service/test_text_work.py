"""Work on the texts of requests never holds the event loop, clients take turns, and it ends with the service."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from operator import attrgetter
from pathlib import Path
from threading import Event, current_thread
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from test_process import ask, when_it_listens
from test_served_documents import done
from test_slow_clients import serving

from knnmt.service.access import new_key
from knnmt.service.config import Limits, ServiceConfig
from knnmt.service.dialects.speaking import Parameters
from knnmt.service.http.request_shapes import Body
from knnmt.service.http.requests import while_connected
from knnmt.service.problems import Problem
from knnmt.service.scheduling.fair_threads import FairThreads
from knnmt.service.service import results_of
from knnmt.translator.translator import Translator
from support.services import StartService

LONG = "Satz " * 400
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema of pydantic and all schemas in it."""
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield schema
        schema = list(schema.values())
    for each in schema if isinstance(schema, list | tuple) else ():
        yield from schemas_in(each)


def bodies(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The shapes of bodies that requests may have."""
    for each in base.__subclasses__():
        if each.model_fields:
            yield each
        yield from bodies(each)


@pytest.mark.parametrize("shape", dict.fromkeys([*bodies(Body), *bodies(Parameters)]), ids=attrgetter("__name__"))
def test_a_body_of_many_faults_has_few_errors(shape: type[BaseModel]) -> None:
    for each in schemas_in(shape.__pydantic_core_schema__):
        if each["type"] == "list":
            assert each.get("fail_fast") or each["max_length"] <= 1_000
    content: dict[str, Any] = {f"field{number}": [[]] * 10 for number in range(101)}
    with pytest.raises(ValidationError) as raised:
        shape.model_validate(content | dict.fromkeys(shape.model_fields, [[]] * 1_000))
    assert raised.value.error_count() <= 100


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    made = FairThreads(1, "test")
    yield made
    made.close()


def held(threads: FairThreads) -> Event:
    """Keep the thread busy until the event is set."""
    begun, go = Event(), Event()

    def hold() -> None:
        begun.set()
        assert go.wait(60)

    threads.submit("first", 1, hold)
    assert begun.wait(60)
    return go


def test_clients_take_turns(threads: FairThreads) -> None:
    go, order = held(threads), list[str]()
    much = [threads.submit("greedy", 1_000, lambda: order.append("much")) for _ in range(5)]
    little = threads.submit("other", 1_000, lambda: order.append("little"))
    go.set()
    wait([*much, little])
    assert "little" in order[:2]


def test_what_is_no_longer_wanted_is_not_done(threads: FairThreads) -> None:
    go, done = held(threads), list[str]()
    gone = threads.submit("a", 1, lambda: done.append("gone"))
    wanted = threads.submit("a", 1, lambda: done.append("wanted"))
    gone.cancel()
    go.set()
    wanted.result(60)
    assert done == ["wanted"]


def test_closed_threads_refuse_what_waits(threads: FairThreads) -> None:
    go = held(threads)
    waiting = threads.submit("a", 1, lambda: None)
    threads.close()
    with pytest.raises(Problem, match="being stopped"):
        waiting.result(60)
    with pytest.raises(Problem, match="being stopped"):
        threads.submit("a", 1, lambda: None)
    go.set()


def test_only_short_texts_are_worked_on_by_the_event_loop(threads: FairThreads) -> None:
    async def where(texts: list[str]) -> list[str]:
        return await threads.each("a", texts, lambda _text: current_thread().name, len)

    assert asyncio.run(where(["a" * 10])) == [current_thread().name]
    assert asyncio.run(where(["a" * 600, "a" * 600, "b" * 20_000])) == ["test"] * 3


@pytest.mark.parametrize(
    ("slow", "path", "body"),
    [
        ("knnmt.service.routes.translate.split_sentences", "/v1/sentences", {"text": LONG}),
        ("knnmt.service.routes.translate._as_json", "/v1/translate", {"texts": [LONG], "beam": 1}),
        (
            "knnmt.service.dialects.libretranslate._detected",
            "/translate",
            {"q": LONG, "source": "auto", "target": "en"},
        ),
        ("knnmt.service.dialects.texts._marked", "/v2/translate", {"text": [LONG], "target_lang": "en"}),
        ("knnmt.service.dialects.deepl._detected", "/v2/translate", {"text": [LONG], "target_lang": "en"}),
        (
            "knnmt.service.dialects.deepl_glossaries._terms",
            "/v2/glossaries",
            {"name": "a", "source_lang": "de", "target_lang": "en", "entries": "a\tb\n" * 1_000},
        ),
        (
            "knnmt.service.http.requests.Glossary",
            "/v1/translate",
            {"texts": ["a"], "glossary": [{"source": f"{number} {'a' * 400}", "target": "b"} for number in range(9)]},
        ),
    ],
)
def test_the_service_answers_while_it_works_on_a_text(
    slow: str,
    path: str,
    body: dict[str, Any],
    tiny_translator: Translator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go = Event(), Event()

    def wait_and_fail(*_: object) -> None:
        begun.set()
        assert go.wait(60)
        raise Problem(422, "made", "the test ends it here")

    monkeypatch.setattr(slow, wait_and_fail)
    with serving(ServiceConfig(data=tmp_path), tiny_translator) as port, ThreadPoolExecutor(1) as clients:
        asked = clients.submit(ask, port, "POST", path, body)
        assert begun.wait(60)
        assert ask(port, "GET", "/health")[0] == 200
        go.set()
        assert asked.result(60)[0] in (400, 422)


@pytest.mark.parametrize("ready", [True, False])
def test_what_is_cancelled_when_the_service_ends_is_told_so(ready: bool) -> None:
    """uvicorn cancels what is not done after SIGTERM. That is no failure of the service."""
    state = SimpleNamespace(service=SimpleNamespace(ready=ready))
    request: Any = SimpleNamespace(app=SimpleNamespace(state=state))

    async def asked() -> None:
        async def forever() -> dict[str, str]:
            await asyncio.sleep(3_600)
            return {"type": "http.disconnect"}

        request.receive = forever
        working = asyncio.ensure_future(while_connected(request, asyncio.sleep(3_600)))
        await asyncio.sleep(0)
        working.cancel()
        await working

    with pytest.raises(asyncio.CancelledError if ready else Problem):
        asyncio.run(asked())


def test_the_event_loop_is_woken_once_for_all_texts_of_a_request() -> None:
    futures: list[Future[int]] = [Future() for _ in range(100)]
    woken = 0

    async def results() -> list[int]:
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def counted(*given: Any, **more: Any) -> Any:
            nonlocal woken
            woken += 1
            return wake(*given, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(loop, "call_soon_threadsafe", counted)
            waiting = asyncio.ensure_future(results_of(futures))
            await asyncio.sleep(0)
            for number, each in enumerate(futures):
                each.set_result(number)
            return await waiting

    assert asyncio.run(results()) == [*range(100)]
    assert woken == 1


@pytest.mark.parametrize("count", [0, 1, 3])
def test_of_texts_that_cannot_be_translated_the_first_error_is_known_at_once(count: int) -> None:
    futures: list[Future[int]] = [Future() for _ in range(count)]

    async def results() -> list[int]:
        waiting = asyncio.ensure_future(results_of(futures))
        await asyncio.sleep(0)
        if count:
            futures[-1].set_exception(Problem(422, "invalid_request", "no text"))
        return await asyncio.wait_for(waiting, 5)

    if not count:
        assert asyncio.run(results()) == []
        return
    with pytest.raises(Problem, match="no text"):
        asyncio.run(results())


@pytest.mark.parametrize(
    ("slow", "method", "path", "body"),
    [
        ("translate.split_sentences", "POST", "/v1/sentences", {"text": LONG}),
        ("Service.describe", "GET", "/v1/domains", None),  # by a thread that Python itself would wait for
    ],
)
def test_work_that_does_not_end_does_not_keep_the_service(
    slow: str, method: str, path: str, body: object, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "serve.toml").write_text("port = 0\n[limits]\nending_seconds = 0.2\n", encoding="utf-8")
    lines = [
        "import sys",
        "from knnmt.cli import main",
        "from knnmt.service.routes import translate",
        "from knnmt.service.service import Service",
        "def for_ever(*_):",
        "    print('begun', file=sys.stderr, flush=True)",
        "    while True: pass",
        f"{slow} = for_ever",
        "main()",
    ]
    command = [sys.executable, "-c", "\n".join(lines), "serve", "-m", str(tiny_checkpoint)]
    command += ["--config", str(tmp_path / "serve.toml")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process,
        ThreadPoolExecutor(1) as clients,
    ):
        try:
            assert process.stderr is not None
            port = int(process.stderr.readline().decode().partition("127.0.0.1:")[2].partition(";")[0])
            when_it_listens(port)
            asked = clients.submit(ask, port, method, path, body)
            assert process.stderr.readline() == b"begun\n"
            assert ask(port, "GET", "/health")[0] == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert asked.exception(60) is not None
        finally:
            process.kill()


def test_what_is_not_done_after_sigterm_is_refused_by_name(tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text("port = 0\n[limits]\nending_seconds = 0.2\n", encoding="utf-8")
    lines = [
        "import sys, time",
        "from knnmt.cli import main",
        "from knnmt.translator.session import Lane",
        "def slow(*_):",
        "    print('begun', file=sys.stderr, flush=True)",
        "    time.sleep(60)",
        "Lane.decode = slow",
        "main()",
    ]
    command = [sys.executable, "-c", "\n".join(lines), "serve", "-m", str(tiny_checkpoint)]
    with (
        subprocess.Popen([*command, "--config", str(tmp_path / "serve.toml")], stderr=subprocess.PIPE) as process,
        ThreadPoolExecutor(1) as clients,
    ):
        try:
            assert process.stderr is not None
            port = int(process.stderr.readline().decode().partition("127.0.0.1:")[2].partition(";")[0])
            when_it_listens(port)
            asked = clients.submit(ask, port, "POST", "/v1/translate", {"texts": ["Ja"]})
            assert process.stderr.readline() == b"begun\n"
            process.send_signal(signal.SIGTERM)
            status, told = asked.result(60)
            assert (status, told["code"]) == (503, "ending")
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_work_on_whole_memories_keeps_no_other_request_waiting(
    tiny_translator: Translator, served_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever lists or exports memories often could fill the threads that all requests share."""
    go = Event()
    monkeypatch.setattr("knnmt.datastore.store.Datastore.units", lambda _store: iter([go.wait(60)][:0]))
    config = ServiceConfig(stores={"small": served_store})
    with serving(config, tiny_translator) as port, ThreadPoolExecutor(50) as clients:
        [memory] = ask(port, "GET", "/v3/translation_memories")[1]["translation_memories"]
        path = f"/v3/translation_memories/{memory['translation_memory_id']}/segments"
        listed = [clients.submit(ask, port, "GET", path) for _ in range(50)]
        try:
            assert ask(port, "GET", "/v1/domains")[0] == 200
            assert not any(each.done() for each in listed)
        finally:
            go.set()
        assert {each.result(60)[0] for each in listed} == {200}


def test_a_document_with_a_unit_that_is_too_long_is_refused(start_service: StartService, served_store: Path) -> None:
    client = start_service(stores={"small": served_store}, limits=Limits(text_characters=30))
    told = done(client, client.post("/v1/documents", params={"name": "a.txt"}, content=b"Satz " * 8))
    assert told["state"] == "failed"
    assert "has 40 characters; the service takes at most 30: divide the unit" in told["message"]


def test_a_client_with_many_documents_makes_room_for_others(
    start_service: StartService, served_store: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    much, other = (
        {"authorization": f"Bearer {new_key(keys, name, 'translate', None, None)}"} for name in ("much", "other")
    )
    client = start_service(stores={"small": served_store}, keys=keys)

    def send(headers: dict[str, str]) -> Any:
        return client.post("/v1/documents", params={"name": "a.txt"}, content=b"1", headers=headers)

    sent = [send(much) for _ in range(50)]
    assert {each.status_code for each in sent} == {202}
    assert send(much).status_code == 429
    assert done(client, send(other), **other)["state"] == "done"
    places = [each.headers["location"] for each in sent]
    assert [client.get(place, headers=much).status_code for place in places[:2]] == [404, 200]
