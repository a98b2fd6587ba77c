"""How tests name the fixture that starts a service."""

from __future__ import annotations

from collections.abc import Callable

from fastapi.testclient import TestClient

StartService = Callable[..., TestClient]
