"""The OpenAPI has an example of every request and answer of our own; each is as its schema says, and can be sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from fastapi.testclient import TestClient

from knnmt.service.http.examples import EXAMPLES
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


@pytest.fixture
def openapi(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def own_operations(openapi: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    ours = ("/v1/", "/health", "/ready", "/metrics")
    return {
        (method, path): operation
        for path, item in openapi["paths"].items()
        for method, operation in item.items()
        if path.startswith(ours)
    }


def test_every_operation_says_what_it_is_and_has_examples(openapi: dict[str, Any]) -> None:
    own = own_operations(openapi)
    assert set(EXAMPLES) == set(own)
    for name, operation in own.items():
        assert operation["description"], name
        asked = operation.get("requestBody", {}).get("content", {}).get("application/json")
        assert asked is None or "example" in asked, name
        answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
        assert len(answers) == 1, name
        answered = answers[0].get("content", {}).get("application/json")
        assert answered is None or "example" in answered, name
        for parameter in operation.get("parameters", ()):
            assert parameter["in"] != "path" or "example" in parameter, (name, parameter["name"])


def test_every_example_is_as_its_schema_says(openapi: dict[str, Any]) -> None:
    checked = 0
    for name, operation in own_operations(openapi).items():
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for body in bodies:
            told = body.get("content", {}).get("application/json", {})
            if "example" in told:
                schema = {**told["schema"], "components": openapi["components"]}
                errors = [error.message for error in jsonschema_rs.validator_for(schema).iter_errors(told["example"])]
                assert not errors, (name, errors)
                checked += 1
    assert checked >= 25


def test_requests_of_the_examples_are_answered(start_service: StartService, served_store: Path) -> None:
    client = start_service(stores={"software": served_store})
    for (method, path), example in EXAMPLES.items():
        if example.asked is None:
            continue
        asked = {**example.asked, "name": "another"} if path == "/v1/domains" else example.asked
        answer = client.request(method, path.replace("{domain}", "software"), json=asked)
        assert answer.is_success, (method, path, answer.text)
        assert answer.json().keys() == example.answered.keys(), (method, path)
