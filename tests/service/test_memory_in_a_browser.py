"""The memory on the page, in a real browser: words are searched in it, and corrections are listed and undone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.opened_pages import (
    HOSTILE,
    NEEDS_BROWSER,
    Windows,
    choose,
    playwright,
    require_accessible,
    sentence,
    translate,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def page(open_page: Windows) -> Page:
    return open_page()


def test_words_are_searched_in_the_memory(page: Page) -> None:
    field, items = page.get_by_label("Words in the memory"), page.locator("#found li")
    field.fill("SATZ ine 7")
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("status")).to_have_text("2 segments")
    assert items.locator("p").all_inner_texts()[:2] == ["Satz 17 ja", "line 17 yes yes"]
    assert items.first.locator("mark").all_inner_texts() == ["Satz", "7", "ine", "7"]
    assert "own.tsv#17" in items.first.inner_text()
    field.fill("<img a+(")
    page.get_by_role("button", name="Search").click()
    playwright.expect(page.get_by_role("status")).to_have_text("0 segments")
    field.fill("onerror")
    page.get_by_role("button", name="Search").click()
    playwright.expect(items.locator("p").first).to_have_text(f"etwas {HOSTILE}")
    choose(page, "base")
    playwright.expect(page.locator("#memory")).to_be_hidden()
    choose(page, "own")
    playwright.expect(items).to_have_count(0)


def test_corrections_are_listed_and_undone(page: Page) -> None:
    translate(page, "Satz 3 ja ja ja\nNoch etwas!", "own")
    page.get_by_role("button", name="Learned corrections").click()
    playwright.expect(page.get_by_role("status")).to_have_text("Nothing has been corrected in this domain.")
    row, items = sentence(page, 0), page.locator("#found li")
    for target in ("learnt first", f"learnt {HOSTILE}"):
        row.get_by_role("button", name="Correct").click()
        row.get_by_label("Your translation").fill(target)
        page.keyboard.press("Control+Enter")
        playwright.expect(row.locator(".words")).to_have_text(target)
        playwright.expect(row.locator(".editor")).to_be_hidden()
    playwright.expect(items).to_have_count(1)  # without being listed again
    playwright.expect(items.locator("s")).to_have_text("learnt first")
    playwright.expect(page.locator("#found-title")).to_have_text("Learned corrections: 1, the newest first")
    undo = page.get_by_role("button", name="Undo the correction of “Satz 3 ja ja ja”")
    undo.click()
    playwright.expect(row.locator(".words")).to_have_text("learnt first")
    playwright.expect(page.get_by_role("button", name="Learned corrections")).to_be_focused()
    playwright.expect(page.get_by_role("status")).to_contain_text("is undone")
    undo.click()
    playwright.expect(items).to_have_count(0)
    playwright.expect(row.locator(".words")).to_have_text("line 3 yes yes yes")
    playwright.expect(page.locator("#domain-facts")).to_contain_text("21 segments")


def test_what_cannot_be_undone_is_said(page: Page) -> None:
    undo = page.get_by_role("button", name="Undo the correction of “Etwas”")
    for target in ("one", "two"):
        segment = {"source": "Etwas", "target": target}
        page.request.put(page.url + "v1/domains/own/segments", data={"segments": [segment]})
        if target == "one":
            page.get_by_role("button", name="Learned corrections").click()
            playwright.expect(undo).to_be_visible()
    undo.click()
    playwright.expect(page.locator("#problem")).to_contain_text("there is no correction")
    playwright.expect(undo).to_be_enabled()


def test_everybody_can_use_the_memory(page: Page) -> None:
    page.get_by_label("Words in the memory").fill("satz")
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#found li")).not_to_have_count(0)
    require_accessible(page)
    page.get_by_role("button", name="Learned corrections").click()
    playwright.expect(page.get_by_role("button", name="Undo the correction of “Etwas”")).to_be_visible()
    require_accessible(page)
