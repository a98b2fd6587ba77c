"""Documents on the page, in a real browser: their units are looked through, source beside translation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from support.opened_pages import (
    HOSTILE,
    NEEDS_BROWSER,
    Windows,
    choose,
    playwright,
    require_accessible,
)

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

pytestmark = NEEDS_BROWSER
TEXTS = {"known": "Satz 3 ja ja ja", "near": f"etwas {HOSTILE}!", "number": "100"}


@pytest.fixture
def page(open_page: Windows) -> Page:
    page = open_page()
    choose(page, "small")
    return page


def send(page: Page, name: str = "texts.json", texts: dict[str, str] = TEXTS) -> Locator:
    """Send a document and wait until it is translated; returns its row."""
    file = {"name": name, "mimeType": "", "buffer": json.dumps(texts).encode()}
    page.get_by_label("Choose files").set_input_files(file)  # type: ignore[arg-type]
    page.get_by_role("button", name="Send").click()
    row = page.locator("#sent > li").first
    playwright.expect(row.get_by_role("link", name="Download texts.")).to_be_visible()
    return row


def test_the_units_of_a_document_are_looked_through(page: Page) -> None:
    row = send(page)
    look = row.get_by_role("button", name="Look through texts.json")
    look.press("Enter")
    view = row.get_by_role("group", name="texts.json: units 1 to 3 of 3")
    playwright.expect(view.get_by_role("heading")).to_be_focused()
    units = view.get_by_role("listitem")
    near, known, number = (units.nth(place) for place in range(3))  # the least certain at the top
    playwright.expect(near.locator(".sides p").first).to_have_text(f"etwas {HOSTILE}!")
    playwright.expect(near.locator(".sides p").first).to_have_attribute("lang", "de")
    playwright.expect(near.locator(".sides p").last).to_have_attribute("lang", "en")
    playwright.expect(known.locator(".sides p").last).to_have_text("line 3 yes yes yes")
    playwright.expect(known).to_contain_text("exact match")
    playwright.expect(number).to_contain_text("nothing to translate")
    near.locator("summary").click()
    playwright.expect(near.locator("details")).to_contain_text(f"some {HOSTILE}")
    playwright.expect(near.locator("details")).to_contain_text(f"own.tsv#{HOSTILE}")
    require_accessible(page)
    page.keyboard.press("Escape")
    playwright.expect(look).to_be_focused()
    playwright.expect(look).to_have_attribute("aria-expanded", "false")
    playwright.expect(units).to_have_count(0)


def test_a_document_of_many_units_is_shown_in_parts(page: Page) -> None:
    """Trap: the service has more units than the page keeps, and than one request may have."""
    warnings = [{"kind": "number", "message": "the source has no 13"}]
    made: list[dict[str, Any]] = [
        {
            "unit": str(number),
            "state": "new",
            "kind": "model alone",
            "source": f"Text {number}",
            "text": f"text {number}",
        }
        for number in range(20_000)
    ]
    made[0] = {"unit": "0", "state": "failed", "source": "Text 0", "text": "", "error": "it is too long"}
    made[1] |= {"certainty": 12, "warnings": warnings}
    made[2] |= {"state": "finished", "kind": None}

    def answer(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        first, limit = int(query["first"][0]), int(query["limit"][0])
        route.fulfill(json={"units": made[first : first + limit], "of": len(made)})

    page.route("**/v1/documents/*/units?**", answer)
    row = send(page)
    playwright.expect(row).to_contain_text("failed: 1 · with warnings: 1")
    row.get_by_role("button", name="Look through").click()
    view, items = row.locator(".units"), row.locator(".units li")
    playwright.expect(items).to_have_count(50)
    playwright.expect(view).to_contain_text("Only the first 10,000 are listed.")
    playwright.expect(items.nth(0)).to_contain_text("Failed: it is too long")
    playwright.expect(items.nth(1)).to_contain_text("about 12% is likely to need no change")
    playwright.expect(items.nth(1)).to_contain_text("the source has no 13")
    playwright.expect(items.nth(2)).to_contain_text("was translated before")
    playwright.expect(view.get_by_role("button", name="Previous units")).to_be_disabled()
    view.get_by_role("button", name="Next units").press("Enter")
    playwright.expect(view.get_by_role("heading")).to_have_text("texts.json: units 51 to 100 of 20,000")
    playwright.expect(view.get_by_role("heading")).to_be_focused()
    playwright.expect(items.first).to_contain_text("Text 50")
    view.get_by_role("button", name="Previous units").click()
    playwright.expect(items.first).to_contain_text("Text 0")
    playwright.expect(items).to_have_count(50)


def test_the_units_are_looked_through_in_german(open_page: Windows) -> None:
    page = open_page(locale="de-DE")
    page.get_by_label("Dateien wählen").set_input_files(
        {"name": "texte.json", "mimeType": "", "buffer": b'{"a": "Satz 3 ja ja ja"}'}
    )
    page.get_by_role("button", name="Senden").click()
    page.get_by_role("button", name="texte.json durchsehen").click()
    playwright.expect(page.locator(".units h3")).to_have_text("texte.json: Einheiten 1 bis 1 von 1")
    playwright.expect(page.locator(".units li")).to_contain_text("exakter Treffer")
