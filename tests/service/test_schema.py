"""The OpenAPI says what the service does: whatever fits it, or does not, never ends in a failure of ours."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from knnmt.service import child_process
from support import warm
from support.services import StartService


def no_failure(_context: Any, response: Any, case: Any) -> None:
    """No answer is a failure of the service; but what must be done within a moment may not be."""
    hurried = isinstance(case.body, dict) and case.body.get("timeout_seconds") is not None
    assert response.status_code < 500 or (hurried and response.status_code == 504), response.text


CHECKS = [no_failure, content_type_conformance, response_schema_conformance, status_code_conformance]
pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that make requests by chance


def try_everything(start_service: StartService, store: Path, examples: int, in_dialects: int) -> None:
    """So many requests of each kind, right and wrong, to every route of ours, and so many to each of a dialect."""
    client = start_service(stores={"small": store})
    schema = schemathesis.openapi.from_asgi("/openapi.json", client.app, headers={"host": "localhost"})
    tried = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        is_ours = operation.path.startswith("/v1/")
        for mode in GenerationMode:

            @settings(
                max_examples=examples if is_ours else in_dialects,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def call(case: Any) -> None:
                case.call_and_validate(checks=CHECKS, headers={"host": "localhost"}, timeout=120)

            with suppress(Unsatisfiable):  # where there is nothing to be wrong
                call()
        tried += 1
    assert tried >= 60


@pytest.fixture(autouse=True)
def _quick_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "start_process", warm.Popen)


def test_no_request_makes_the_service_fail(start_service: StartService, served_store: Path) -> None:
    try_everything(start_service, served_store, 2, in_dialects=1)


@pytest.mark.soak
def test_no_request_of_many_makes_the_service_fail(start_service: StartService, served_store: Path) -> None:
    try_everything(start_service, served_store, 300, in_dialects=75)
