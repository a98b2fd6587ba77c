"""What DeepL's clients rely on is there when the service was started again with the same directory."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from knnmt.service.exchanges import Exchanges
from knnmt.service.problems import Problem
from knnmt.service.usage import Usage
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
TERMS = {"name": "n", "source_lang": "de", "target_lang": "en", "entries": "a\tb"}
ANNOUNCED = {"source_file": {"file_name": "own.tmx", "content_length": 9}}


def answer(client: TestClient, path: str, body: object = None) -> Any:
    told = client.get(path) if body is None else client.post(path, json=body)
    assert told.status_code < 300, told.text
    return told.json()


def test_what_a_client_has_seen_is_there_after_a_restart(start_service: StartService, served_store: Path) -> None:
    before = start_service(stores={"small": served_store})
    answer(before, "/v2/translate", {"text": ["Wort"], "target_lang": "EN-GB"})
    glossary = answer(before, "/v2/glossaries", TERMS)["glossary_id"]
    [memory] = answer(before, "/v3/translation_memories")["translation_memories"]
    sending = answer(before, "/v3/translation_memories/import", ANNOUNCED)
    taking = answer(before, f"/v3/translation_memories/{memory['translation_memory_id']}/export", {})
    before.app.state.service.close()  # type: ignore[attr-defined]

    after = start_service(stores={"small": served_store})
    assert answer(after, "/v2/usage")["character_count"] == 4
    answer(after, "/v2/translate", {"text": ["Wort"], "target_lang": "EN-GB"})
    assert answer(after, "/v2/usage")["character_count"] == 8
    assert answer(after, f"/v2/glossaries/{glossary}")["name"] == "n"
    assert answer(after, "/v3/translation_memories")["translation_memories"] == [memory]
    waiting = answer(after, f"/v3/translation_memories/jobs/{sending['job_id']}")
    assert waiting["results"] == [{"status": "awaiting_input"}]
    taken = answer(after, f"/v3/translation_memories/jobs/{taking['job_id']}")["results"][0]
    assert after.get(taken["download_url"]).text.count("<tu>") == 20


def test_usage_is_written_while_the_service_runs(tmp_path: Path) -> None:
    """So that a service that is killed has most of it."""
    counted = Usage(tmp_path, seconds=-1.0)
    for _ in range(3):
        counted.count("tool", 5)
    until = time.monotonic() + 60
    while Usage(tmp_path).of("tool") < 15 and time.monotonic() < until:
        time.sleep(0.01)
    assert Usage(tmp_path).of("tool") == 15
    assert Usage(None).of("tool") == 0


@pytest.mark.parametrize("content", ["{", "[]", '{"characters": {"a": -1}}', '{"characters": {"a": "b"}}', '{"x": 1}'])
def test_files_that_are_not_ours_are_begun_anew(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("usage.json", "exchanges.json"):
        (tmp_path / name).write_text(content)
    assert Usage(tmp_path).of("a") == 0
    Exchanges(tmp_path).begin("export", "tool", "small")
    assert caplog.text.count("cannot be read") == 2


def test_exchanges_are_kept_for_their_owner_alone(tmp_path: Path) -> None:
    kept = Exchanges(tmp_path)
    first = kept.begin("import", "tool", "own", "own.tmx")
    kept.sent(first.id, "job")
    again = Exchanges(tmp_path)
    assert again.with_token(first.token, "import").job == "job"
    with pytest.raises(Problem):
        again.with_token(first.token, "export")
    file = tmp_path / "exchanges.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    old = json.loads(file.read_text())
    old["exchanges"][0]["created"] -= 100_000
    file.write_text(json.dumps(old))
    later = Exchanges(tmp_path)
    later.begin("export", "tool", "own")
    with pytest.raises(Problem):
        later.of(first.id)
