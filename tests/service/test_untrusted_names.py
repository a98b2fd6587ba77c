"""No path of a request reaches the file system: whatever file the service opens, makes or moves has a name of ours."""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from knnmt.service import child_process
from support import warm
from support.route_table import FILE, KNOWN, LANGUAGES, TABLE, World, announced
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
HOSTILE = ("../../intruded/x.po", "/tmp/intruded.po", "..\\intruded.po", "intruded\0.po", "file:///intruded.po")
_touched: list[tuple[str, str, bool]] | None = None
_writing = re.compile(r"[wax+]")


def _audit(event: str, told: tuple[Any, ...]) -> None:
    """Python calls this before it touches a file; it cannot be taken away again."""
    if _touched is None or event.partition(".")[0] not in ("open", "os", "shutil", "tempfile"):
        return
    writes = event != "open" or (isinstance(told[1], str) and _writing.search(told[1]) is not None)
    _touched.extend((event, str(each), writes) for each in told if isinstance(each, str | bytes | Path))


@cache
def _begin_auditing() -> None:
    """Not before it is needed: every test that follows pays for it."""
    sys.addaudithook(_audit)


@contextmanager
def touched() -> Iterator[list[tuple[str, str, bool]]]:
    """Events of the file system, each with a path and whether it changes something."""
    global _touched
    _begin_auditing()
    _touched = []
    try:
        yield _touched
    finally:
        _touched = None


@pytest.fixture
def world(start_service: StartService, served_store: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(child_process, "start_process", warm.Popen)
    return World(start_service(stores={"small": served_store}), {"owner": ""})


def each_spoilt(sent: Any, hostile: str) -> Iterator[Any]:
    """The same with one text of it at a time replaced by a hostile one."""
    if isinstance(sent, str):
        yield hostile
    elif isinstance(sent, tuple):  # the name of a file, and its content
        yield (hostile, *sent[1:])
    elif isinstance(sent, dict):
        for name, value in sent.items():
            yield from ({**sent, name: other} for other in each_spoilt(value, hostile))
    elif isinstance(sent, list):
        for number, value in enumerate(sent):
            yield from ([*sent[:number], other, *sent[number + 1 :]] for other in each_spoilt(value, hostile))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_name_of_a_request_becomes_one_of_a_file(world: World, hostile: str) -> None:
    asked = 0
    with touched() as events:
        for name, route in TABLE.items():
            method, template = name.split(" ", 1)
            sent = route.sent(world, "small")
            for spoilt in each_spoilt(sent, hostile):
                path = re.sub(r"\{\w+(?::\w+)?\}", "small", template)
                assert world.client.request(method, path, **spoilt).status_code < 500
                asked += 1
            if "{" in template and "\0" not in hostile:
                for written in (hostile, hostile.replace("/", "%2f").replace("\\", "%5c"), f"{'.' * 2}%2f{hostile}"):
                    path = re.sub(r"\{\w+(?::\w+)?\}", lambda _: written, template)  # noqa: B023 - used at once
                    assert world.client.request(method, path, **sent).status_code < 500
                    asked += 1
        found = [event for event in events if "intruded" in event[1]]
    assert asked > 100
    assert events
    assert not found


def test_what_is_sent_is_written_in_quarantine_alone(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory in the directory of its job, a document in one that ends with the service; both under names of ours."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with touched() as events:
        job = world.client.post("/v1/domains/made/memories?name=a.tsv", content=b"a\tb\n").json()
        world.client.post("/v1/documents?name=b.json", content=FILE)
        large = {"file": ("c.json", FILE + b" " * (2 << 20))}  # too large to stay in memory
        world.client.post("/translate_file", data=LANGUAGES, files=large)
        world.client.post("/v3/translation_memories/import", json=announced("sent"))
        world.client.post("/v1/translate", json={"texts": [KNOWN]})
        while world.client.get(f"/v1/jobs/{job['id']}").json()["state"] in ("waiting", "running"):
            threading.Event().wait(0.01)
        written = {path for event, path, writes in events if writes and Path(path).is_absolute()}
    allowed = (tmp_path / "data", place)
    assert any(path.endswith(f"{job['id']}/memory.tsv") for path in written)
    assert any(re.search(r"knnmt-service-\w+/[0-9a-f]{16}/document\.json$", path) for path in written)
    assert [path for path in written if not any(Path(path).is_relative_to(each) for each in allowed)] == []
