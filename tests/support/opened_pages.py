"""Pages in a real browser, for the tests of `test_…_in_a_browser.py`: what people do with them.

It needs Chromium on the path and the package `playwright`; axe-core comes with `axe-playwright-python`.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore
from knnmt.service.config import ServiceConfig
from knnmt.service.http.app import make_app
from knnmt.service.service import Service
from knnmt.translator.translator import Translator
from support.datastore_pairs import some_pairs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDS_BROWSER = [
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium"),
    pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning"),
    pytest.mark.usefixtures("nothing_strange"),
]
TEXT = "Satz 3 ja ja ja\netwas. Noch etwas!"  # the memory holds the first
PATIENCE = 60_000  # milliseconds, for a machine that is busy
HOSTILE = "<img src=x onerror=alert(1)>"


@contextmanager
def served(config: ServiceConfig, translator: Translator) -> Iterator[str]:
    """A service on a port of its own; yields its address."""
    server = uvicorn.Server(uvicorn.Config(make_app(Service(config, translator)), log_config=None, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def stored(place: Path, translator: Translator) -> Path:
    """A new store with sentences of made-up words, and one segment whose texts and origin try to be HTML."""
    pairs = [*some_pairs(20), SegmentPair(f"etwas {HOSTILE}", f"some {HOSTILE}", f"own.tsv#{HOSTILE}")]
    return Datastore.build(place / "store", pairs, translator.engine).path


@contextmanager
def site(store: Path, translator: Translator) -> Iterator[str]:
    """The address of a service with two domains that hold the same: `small`, to be read, and `own`, to be changed."""
    stores = {"small": store, "own": shutil.copytree(store, store.with_name("own"))}
    config = ServiceConfig(stores=stores, default="small", data=store.with_name("data"))
    with served(config, translator) as address:
        yield address


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser without a window."""
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])  # containers have none


class Windows:
    """Windows of a browser on the page of a service, and what happened in them that must not happen."""

    def __init__(self, stack: ExitStack, browser: Browser, address: str) -> None:
        self._stack, self._browser, self._address = stack, browser, address
        self._strange: list[str] = []

    def __call__(self, address: str | None = None, path: str = "/", **settings: Any) -> Page:
        """Open the page in a window of its own; settings: of the window, such as its locale"""
        address = address or self._address
        context = self._stack.enter_context(self._browser.new_context(**{"locale": "en-GB", **settings}))
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        watch(page, address, self._strange)
        page.goto(address + path)
        return page

    def require_nothing_strange(self) -> None:
        """Fail if a page failed, or asked anybody else."""
        strange = [each for each in self._strange if "status of 4" not in each]  # which tests of refusals see
        self._strange.clear()
        assert strange == []


def watch(page: Page, address: str, strange: list[str]) -> None:
    """Note what must not happen: errors, dialogs, requests to others."""

    def asked(request: Request) -> None:
        if not request.url.startswith((address, "blob:")):
            strange.append(request.url)

    def said(message: ConsoleMessage) -> None:
        if message.type == "error":
            strange.append(message.text)

    page.on("pageerror", lambda error: strange.append(str(error)))
    page.on("dialog", lambda dialog: strange.append(f"a dialog: {dialog.message}"))
    page.on("request", asked)
    page.on("console", said)


def translate(page: Page, text: str = TEXT, domain: str = "small") -> None:
    """Until all is there."""
    page.get_by_label("Text to translate").fill(text)
    choose(page, domain)
    page.get_by_role("button", name="Translate", exact=True).click()
    all_there(page)


def choose(page: Page, domain: str) -> None:
    page.get_by_label("Domain", exact=True).select_option(domain)


def all_there(page: Page) -> None:
    playwright.expect(page.locator("#stop")).to_be_hidden()
    playwright.expect(page.locator("#sentences .sentence").first).to_be_visible()


def sentence(page: Page, number: int) -> Any:
    return page.locator(".sentence").nth(number)


def require_accessible(page: Page) -> None:
    """Fail if axe-core finds a problem, or if anything is wider than the window of a phone."""
    pytest.importorskip("axe_playwright_python")
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    assert violations(page, {}) == []
    usual = page.viewport_size
    assert usual is not None
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 360, "height": 740})
    assert violations(page, {"runOnly": ["color-contrast", "target-size"]}) == []  # what colours and width can change
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(usual)


def violations(page: Page, options: dict[str, Any]) -> list[tuple[str, list[str]]]:
    found = page.evaluate("options => axe.run(options)", options)["violations"]
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]
