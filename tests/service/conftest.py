"""A service on a small random model, asked without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from datastore_pairs import some_pairs
from fastapi.testclient import TestClient

from knnmt.datastore.store import Datastore
from knnmt.service.app import make_app
from knnmt.service.config import ServiceConfig
from knnmt.service.service import Service
from knnmt.translator.translator import Translator

StartService = Callable[..., TestClient]


@pytest.fixture(scope="session")
def translator(tiny_checkpoint: Path) -> Iterator[Translator]:
    with Translator(tiny_checkpoint, device="cpu") as made:
        yield made


@pytest.fixture
def store(tmp_path: Path, translator: Translator) -> Path:
    return Datastore.build(tmp_path / "s", some_pairs(20), translator.engine).path


@pytest.fixture
def start(tmp_path: Path, translator: Translator) -> Iterator[StartService]:
    """start(stores={...}, ...) serves stores on the small model; its end is that of the test."""
    clients: list[TestClient] = []

    def begin(**settings: object) -> TestClient:
        config = ServiceConfig(data=tmp_path / "data", **settings)  # type: ignore[arg-type]
        client = TestClient(make_app(Service(config, translator)), base_url="http://127.0.0.1")
        client.__enter__()
        clients.append(client)
        return client

    yield begin
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(start: StartService, store: Path) -> TestClient:
    """A service with one domain, `small`."""
    return start(stores={"small": store})
