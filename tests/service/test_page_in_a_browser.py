"""The page in a real browser: what people do with it, by pointer, keyboard and screen reader.

It needs Chromium on the path and the package `playwright`; axe-core comes with `axe-playwright-python`.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from datastore_pairs import some_pairs

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore
from knnmt.service.access import new_key
from knnmt.service.app import make_app
from knnmt.service.config import ServiceConfig
from knnmt.service.service import Service
from knnmt.translator.translator import Translator

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route, ViewportSize

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium"),
    pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning"),
]
HOSTILE = "<img src=x onerror=alert(1)>"
TEXT = "Satz 3 ja ja ja\netwas. Noch etwas!"  # the memory holds the first
PATIENCE = 60_000  # milliseconds, for a machine that is busy
PHONE: ViewportSize = {"width": 360, "height": 740}
OpenPage = Callable[..., "Page"]


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])  # containers have none


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tiny_translator: Translator) -> Path:
    pairs = [*some_pairs(20), SegmentPair(f"etwas {HOSTILE}", f"some {HOSTILE}", f"own.tsv#{HOSTILE}")]
    return Datastore.build(tmp_path_factory.mktemp("page") / "store", pairs, tiny_translator.engine).path


@pytest.fixture(scope="module")
def site(store: Path, tiny_translator: Translator) -> Iterator[str]:
    """The address of a service that all share: `small` is only read, `own` is what is learnt in."""
    own = shutil.copytree(store, store.with_name("own"))
    stores = {"small": store, "own": own}
    config = ServiceConfig(stores=stores, default="small", data=store.with_name("data"))
    with served(config, tiny_translator) as address:
        yield address


@pytest.fixture(scope="module")
def strange() -> list[str]:
    return []


@pytest.fixture(autouse=True)
def _nothing_strange(strange: list[str]) -> Iterator[None]:
    """No page may fail, nor ask anybody else."""
    yield
    found = [each for each in strange if "status of 40" not in each]  # which tests of refusals see
    strange.clear()
    assert found == []


@pytest.fixture(scope="module")
def open_page(browser: Browser, site: str, strange: list[str]) -> Iterator[OpenPage]:
    """open_page(locale=...) opens the page in a window of its own."""
    with ExitStack() as stack:

        def start(address: str = site, path: str = "/", **settings: Any) -> Page:
            context = stack.enter_context(browser.new_context(**{"locale": "en-GB", **settings}))
            page = context.new_page()
            page.set_default_timeout(PATIENCE)
            watch(page, address, strange)
            page.goto(address + path)
            return page

        yield start


@pytest.fixture(scope="module")
def page(open_page: OpenPage) -> Page:
    """The one that most tests use, one after the other."""
    return open_page()


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


def test_a_text_is_translated_with_and_without_memory(page: Page) -> None:
    page.get_by_label("Text to translate").fill(TEXT)
    page.keyboard.press("Control+Enter")
    all_there(page)
    assert page.locator(".sentence h3").all_inner_texts() == ["Satz 3 ja ja ja", "etwas.", "Noch etwas!"]
    assert sentence(page, 0).locator(".words").inner_text() == "line 3 yes yes yes"
    assert "exact match" in sentence(page, 0).inner_text()
    assert "own.tsv#3" in sentence(page, 0).inner_text()
    assert sentence(page, 1).locator(".word").count() > 0
    assert page.locator(".alone").all_inner_texts() != ["…"] * 3
    playwright.expect(page.get_by_role("status")).to_have_text("All 3 sentences are translated.")
    correct = sentence(page, 1).get_by_role("button", name="Correct")
    playwright.expect(correct).to_have_accessible_description("etwas.")
    choose(page, "base")  # which is shown at once
    playwright.expect(page.locator(".alone")).to_have_count(0)
    playwright.expect(page.get_by_role("button", name="Correct")).to_have_count(0)
    all_there(page)


def test_a_text_that_is_given_up_does_not_end_the_one_that_follows(page: Page) -> None:
    stop = page.get_by_role("button", name="Stop")
    page.route("**/v1/translate", lambda _route: None)  # which is never answered
    for number in (1, 2):
        with page.expect_request("**/v1/translate"):
            page.get_by_label("Text to translate").fill(f"Text {number}")
            page.keyboard.press("Control+Enter")
    playwright.expect(page.locator(".sentence h3")).to_have_text("Text 2")
    playwright.expect(stop).to_be_visible()
    stop.click()
    playwright.expect(stop).to_be_hidden()
    playwright.expect(page.get_by_role("status")).to_have_text("Stopped.")
    page.unroute_all()


def test_a_word_shows_its_neighbours_by_pointer_and_by_keyboard(page: Page) -> None:
    translate(page, "etwas <img src=x>")
    words, panel = sentence(page, 0).locator(".word"), sentence(page, 0).locator(".panel")
    words.first.click()
    playwright.expect(words.first).to_have_attribute("aria-expanded", "true")
    assert "Neighbours with" in panel.inner_text()
    assert panel.locator(".near li").count() > 1
    assert "distance" in panel.locator(".near small").first.inner_text()
    page.keyboard.press("End")
    playwright.expect(words.last).to_be_focused()
    assert "end of the sentence" in panel.inner_text()
    page.keyboard.press("ArrowLeft")
    playwright.expect(words.last).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("Escape")
    playwright.expect(panel).to_be_hidden()
    playwright.expect(words.nth(words.count() - 2)).to_be_focused()
    page.keyboard.press("Enter")
    panel.get_by_role("button", name="Close").press("Enter")
    playwright.expect(words.nth(words.count() - 2)).to_be_focused()


def test_what_is_learnt_counts_for_the_same_sentence_and_lasts(page: Page) -> None:
    translate(page, domain="own")
    playwright.expect(page.locator("#domain-facts")).to_contain_text("21 segments")
    row = sentence(page, 1)
    row.get_by_role("button", name="Correct").click()
    field = row.get_by_label("Your translation")
    playwright.expect(field).to_be_focused()
    field.fill(" ")
    row.get_by_role("button", name="Learn").click()
    playwright.expect(row.get_by_role("alert")).to_have_text("Write a translation first.")
    field.fill(f"something {HOSTILE}")
    page.keyboard.press("Control+Enter")
    playwright.expect(row.locator(".words")).to_have_text(f"something {HOSTILE}")
    playwright.expect(row.locator(".followed")).to_have_text("changed by a correction")
    playwright.expect(row.get_by_role("button", name="Correct")).to_be_focused()
    playwright.expect(page.locator("#domain-facts")).to_contain_text("22 segments")
    page.reload()
    playwright.expect(page.get_by_label("Domain", exact=True)).to_have_value("small")  # the default one
    translate(page, "etwas.", "own")
    playwright.expect(sentence(page, 0).locator(".words")).to_have_text(f"something {HOSTILE}")


def test_matches_are_listed_and_can_be_used(page: Page) -> None:
    translate(page, f"etwas {HOSTILE}!")
    row = sentence(page, 0)
    row.get_by_role("button", name="Best matches").click()
    first = row.locator(".matches li").first
    playwright.expect(first).to_contain_text(f"some {HOSTILE}")
    playwright.expect(first).to_contain_text(f"own.tsv#{HOSTILE}")
    first.get_by_role("button", name="Use this").click()
    assert row.get_by_label("Your translation").input_value() == f"some {HOSTILE}"
    row.get_by_role("button", name="Cancel").click()
    playwright.expect(row.get_by_role("button", name="Correct")).to_be_focused()


def test_the_glossary_is_read_line_by_line(page: Page) -> None:
    page.locator(".glossary summary").click()
    glossary = page.locator("#glossary")
    glossary.fill("Satz = sentence\n\nno term")
    page.get_by_label("Text to translate").fill("etwas")
    glossary.press("Control+Enter")
    playwright.expect(page.locator("#problem")).to_have_text("Glossary, line 3: expected term=translation.")
    glossary.fill("Satz = sentence = S\n\n")
    with page.expect_request("**/v1/translate") as sent:
        translate(page, "etwas")
    assert (sent.value.post_data_json or {})["glossary"] == [{"source": "Satz", "target": "sentence = S"}]
    playwright.expect(page.locator("#problem")).to_be_hidden()
    playwright.expect(page.locator(".followed")).to_have_count(0)  # nothing was learnt
    glossary.fill("")


def test_a_service_with_keys_asks_for_one(
    open_page: OpenPage, store: Path, tmp_path: Path, tiny_translator: Translator
) -> None:
    key = new_key(tmp_path / "keys.json", "reader", "translate")
    with served(ServiceConfig(stores={"small": store}, keys=tmp_path / "keys.json"), tiny_translator) as address:
        page = open_page(address)
        field = page.get_by_label("API key")
        playwright.expect(field).to_be_focused()
        field.fill(key)
        page.keyboard.press("Enter")
        playwright.expect(field).to_be_hidden()
        playwright.expect(page.get_by_label("Text to translate")).to_be_focused()
        translate(page)
        sentence(page, 1).get_by_role("button", name="Correct").click()
        sentence(page, 1).get_by_role("button", name="Learn").click()
        playwright.expect(sentence(page, 1).get_by_role("alert")).to_contain_text("needs a key with the role write")
        page.close()


def test_the_page_speaks_german_and_stays_so(open_page: OpenPage) -> None:
    page = open_page(locale="de-AT", path="/d/base/")
    playwright.expect(page.get_by_role("button", name="Übersetzen", exact=True)).to_be_visible()
    assert page.locator("html").get_attribute("lang") == "de"
    playwright.expect(page.get_by_label("Domäne", exact=True)).to_have_value("base")  # once the domains are known
    page.get_by_label("Sprache dieser Seite").select_option("en")
    playwright.expect(page.get_by_role("button", name="Translate", exact=True)).to_be_visible()
    page.reload()
    playwright.expect(page.get_by_role("button", name="Translate", exact=True)).to_be_visible()
    page.close()


def test_the_address_of_no_domain_is_said(open_page: OpenPage) -> None:
    page = open_page(path="/d/nothing/")
    playwright.expect(page.locator("#problem")).to_contain_text("no domain “nothing”")
    playwright.expect(page.get_by_label("Domain", exact=True)).to_have_value("small")
    page.close()


def test_everybody_can_use_it(page: Page) -> None:
    """axe-core finds nothing, with all open that can be opened; nothing is wider than the window of a phone."""
    pytest.importorskip("axe_playwright_python")
    page.locator(".glossary").evaluate("details => (details.open = true)")
    translate(page, f"Satz 3 ja ja ja\n{'lang' * 15}")
    row = sentence(page, 1)
    row.locator(".word").last.click()  # which is one token
    row.get_by_role("button", name="Best matches").click()
    row.get_by_role("button", name="Correct").click()
    playwright.expect(row.locator(".matches")).not_to_contain_text("…")
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    assert violations(page, {}) == []
    usual = page.viewport_size
    assert usual is not None
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(PHONE)
    assert violations(page, {"runOnly": ["color-contrast", "target-size"]}) == []  # what colours and width can change
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(usual)
    row.get_by_role("button", name="Cancel").click()


def violations(page: Page, options: dict[str, Any]) -> list[tuple[str, list[str]]]:
    found = page.evaluate("options => axe.run(options)", options)["violations"]
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]


def test_a_document_comes_back_translated(page: Page, tmp_path: Path) -> None:
    page.get_by_role("button", name="Send").click()
    playwright.expect(page.locator("#problem")).to_have_text("Choose a file first.")
    catalog = tmp_path / "app.po"
    catalog.write_text('msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "Satz 3 ja ja ja"\nmsgstr ""\n', encoding="utf-8")
    page.get_by_label("Choose files").set_input_files(catalog)
    page.get_by_role("button", name="Send").click()
    with page.expect_download() as taken:
        page.get_by_role("link", name="Download app.").click()
    assert 'msgid "Satz 3 ja ja ja"\nmsgstr "line 3 yes yes yes"' in taken.value.path().read_text(encoding="utf-8")
    dropped = page.evaluate_handle(
        """(name) => {
            const dropped = new DataTransfer();
            dropped.items.add(new File(['msgid "x'], name));
            return dropped;
        }""",
        f"{HOSTILE}.po",
    )
    page.dispatch_event("#text", "drop", {"dataTransfer": dropped})  # wherever they fall
    page.get_by_role("button", name="Send").click()
    playwright.expect(page.locator("#sent li").first).to_contain_text(f"{HOSTILE}.po")
    playwright.expect(page.locator("#sent li .failed")).to_contain_text("Failed: ")


def test_the_progress_of_a_memory_is_shown_until_it_is_cancelled(page: Page) -> None:
    job = {
        "id": "1",
        "domain": "houses",
        "name": "own.tsv",
        "state": "running",
        "stage": "building",
        "done": 1,
        "of": 4,
    }
    page.route("**/v1/domains/houses/memories**", lambda route: route.fulfill(status=202, json=job))

    def answer(route: Route) -> None:
        if route.request.method == "DELETE":
            job["state"] = "cancelled"
        route.fulfill(json=job)

    page.route("**/v1/jobs/1", answer)
    page.get_by_label("Make a domain from them").check()
    name = page.get_by_label("Name of the domain")
    for file, suggested in (("Häuser (2).tmx", "hauser-2"), ("own.tsv", "own")):
        page.get_by_label("Choose files").set_input_files({"name": file, "mimeType": "", "buffer": b"x\ty\n"})
        playwright.expect(name).to_have_value(suggested)
    name.fill("houses")
    page.get_by_role("button", name="Send").click()
    row = page.locator("#sent li").first
    playwright.expect(row).to_contain_text("1 of 4 done")
    playwright.expect(page.get_by_role("progressbar", name="Progress of own.tsv")).to_have_attribute("value", "1")
    row.get_by_role("button", name="Cancel own.tsv").click()
    playwright.expect(row).to_have_text("own.tsvcancelled")
    page.unroute_all()
    page.get_by_label("Translate them in").check()


@pytest.mark.soak
def test_a_memory_becomes_a_domain(page: Page) -> None:
    page.get_by_label("Make a domain from them").check()
    memory = {"name": "own.tsv", "mimeType": "text/plain", "buffer": b"Haus\thouse\nBaum\ttree\n"}
    page.get_by_label("Choose files").set_input_files(memory)  # type: ignore[arg-type]
    page.get_by_label("Name of the domain").fill("../x")
    page.get_by_role("button", name="Send").click()
    playwright.expect(page.locator("#problem")).to_contain_text("Name the domain")
    page.get_by_label("Choose files").set_input_files(memory)  # type: ignore[arg-type]
    page.get_by_label("Name of the domain").fill("houses")
    page.get_by_role("button", name="Send").click()
    row = page.locator("#sent li").first
    playwright.expect(row).to_have_text("own.tsvis part of the domain houses now.", timeout=60_000)
    playwright.expect(page.get_by_label("Domain", exact=True)).to_have_value("houses")
    playwright.expect(page.locator("#domain-facts")).to_contain_text("2 segments")
    translate(page, "Haus", "houses")
    playwright.expect(sentence(page, 0).locator(".words")).to_have_text("house")
