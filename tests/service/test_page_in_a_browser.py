"""The page in a real browser: what people do with it, by pointer, keyboard and screen reader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from knnmt.service.access import new_key
from knnmt.service.config import ServiceConfig
from knnmt.translator.translator import Translator
from support.opened_pages import (
    HOSTILE,
    NEEDS_BROWSER,
    TEXT,
    Windows,
    all_there,
    choose,
    playwright,
    require_accessible,
    sentence,
    served,
    translate,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def page(open_page: Windows) -> Page:
    """The window that most tests use, one after the other."""
    return open_page()


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
    translate(page, "Satz 8 <img src=x>")
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


def test_matches_that_are_open_show_what_was_learnt(page: Page) -> None:
    translate(page, "Satz 4 ja ja nein", "own")
    row = sentence(page, 0)
    row.get_by_role("button", name="Best matches").click()
    best = row.locator(".matches li").first
    playwright.expect(best).not_to_contain_text("learnt just now")
    row.get_by_role("button", name="Correct").click()
    row.get_by_label("Your translation").fill("learnt just now")
    page.keyboard.press("Control+Enter")
    playwright.expect(best).to_contain_text("learnt just now")
    playwright.expect(best).to_contain_text("100%")


def test_what_is_copied_ends_with_the_translation(open_page: Windows) -> None:
    """Trap: after the last word there is a button for the end of the sentence, with a word on it."""
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    translate(page, "etwas. Satz 7 ja nein ja")
    words = sentence(page, 1).locator(".words")
    assert words.locator(".end").count() == 1
    words.evaluate("words => getSelection().selectAllChildren(words)")
    page.keyboard.press("Control+C")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied
    page.get_by_role("button", name="Copy the translation").click()
    playwright.expect(page.get_by_role("status")).to_have_text("The translation is copied.")
    assert page.evaluate("navigator.clipboard.readText()").endswith(copied)
    page.close()


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


def test_a_glossary_is_sent_used_and_deleted(page: Page) -> None:
    page.locator(".glossary").evaluate("details => (details.open = true)")
    choose(page, "small")
    field, choice = page.get_by_label("Add a file"), page.get_by_label("From a file")
    broken: Any = {"name": "terms.csv", "mimeType": "text/csv", "buffer": b"Datei,file\nOrdner\n"}
    field.set_input_files(broken)
    playwright.expect(page.locator("#problem")).to_contain_text("terms.csv, line 2: expected at least 2 columns")
    terms = b"etwas\tsome\netwas\tother\nDatei\tfile\n"
    sound: Any = {"name": f"a{HOSTILE}.tsv", "mimeType": "text/plain", "buffer": terms}
    field.set_input_files(sound)
    playwright.expect(page.get_by_role("status")).to_contain_text(
        "2 terms are used from now on. 1 further translations"
    )
    playwright.expect(page.locator("#problem")).to_be_hidden()
    number = choice.input_value()
    playwright.expect(page.locator(".glossary summary")).to_contain_text(".tsv")
    page.locator("#glossary").fill("noch = still")
    with page.expect_request("**/v1/translate") as sent:
        translate(page, "etwas")
    asked = sent.value.post_data_json or {}
    assert (asked["glossary_id"], asked["glossary"]) == (number, [{"source": "noch", "target": "still"}])
    playwright.expect(sentence(page, 0).locator(".words")).to_contain_text("Some")
    with page.expect_request("**/v1/documents?*") as sent:
        page.get_by_label("Choose files").set_input_files(
            {"name": "a.json", "mimeType": "application/json", "buffer": b'{"a": "etwas"}'}
        )
        page.get_by_role("button", name="Send", exact=True).click()
    assert f"glossary_id={number}" in sent.value.url
    playwright.expect(page.get_by_role("status")).to_contain_text("a.json is translated")
    require_accessible(page)
    page.get_by_role("button", name="Delete the glossary").click()
    playwright.expect(page.get_by_role("status")).to_contain_text("is deleted")
    playwright.expect(choice).to_be_focused()
    assert (choice.input_value(), choice.locator("option").count()) == ("", 1)
    page.locator("#glossary").fill("")


def test_settings_are_part_of_requests_if_somebody_has_set_them(page: Page, tmp_path: Path) -> None:
    page.get_by_text("Settings", exact=True).click()
    page.get_by_label("Beam").fill("2")
    page.get_by_label("Own placeholders, one per line").fill("~~*~~\n<<*>>")
    page.get_by_label("Exact matches").select_option("prefer")
    require_accessible(page)
    page.get_by_label("Language of this page").select_option("de")
    playwright.expect(page.get_by_label("Exakte Treffer")).to_have_value("prefer")
    page.get_by_label("Sprache dieser Seite").select_option("en")
    with page.expect_request("**/v1/translate") as sent:
        translate(page, "Satz 8 ~~x~~")
    body = sent.value.post_data_json or {}
    set_here = {"beam": 2, "placeholders": ["~~*~~", "<<*>>"], "exact_matches": "prefer"}
    assert {name: body.get(name) for name in set_here} == set_here
    assert not body.keys() & {"protect", "tags", "max_tokens"}
    file = tmp_path / "set.json"
    file.write_text('{"a": "Satz 1 ja"}')
    page.get_by_label("Choose files").set_input_files(file)
    with page.expect_request("**/v1/documents?*") as sent:
        page.get_by_role("button", name="Send").click()
    assert (
        "&beam=2&placeholder=~~*~~&placeholder=%3C%3C*%3E%3E&exact_matches=prefer".replace("~", "%7E") in sent.value.url
    )
    playwright.expect(page.get_by_role("link", name="Download")).to_be_visible()
    for label in ("Beam", "Own placeholders, one per line"):
        page.get_by_label(label).fill("")
    page.get_by_label("Exact matches").select_option("")
    page.get_by_text("Settings", exact=True).click()


def test_a_service_with_keys_asks_for_one(
    open_page: Windows, stored_page: Path, tmp_path: Path, tiny_translator: Translator
) -> None:
    key = new_key(tmp_path / "keys.json", "reader", "translate")
    with served(ServiceConfig(stores={"small": stored_page}, keys=tmp_path / "keys.json"), tiny_translator) as address:
        page = open_page(address)
        field = page.get_by_label("API key")
        playwright.expect(field).to_be_focused()
        field.fill(key)
        page.keyboard.press("Enter")
        playwright.expect(field).to_be_hidden()
        playwright.expect(page.get_by_label("Text to translate")).to_be_focused()
        translate(page)
        sentence(page, 1).get_by_role("button", name="Correct").click()
        sentence(page, 1).get_by_label("Your translation").fill("something")
        sentence(page, 1).get_by_role("button", name="Learn").click()
        playwright.expect(sentence(page, 1).get_by_role("alert")).to_contain_text("needs a key with the role write")
        page.close()


def test_the_page_speaks_german_and_stays_so(open_page: Windows) -> None:
    page = open_page(locale="de-AT", path="/d/base/")
    playwright.expect(page.get_by_role("button", name="Übersetzen", exact=True)).to_be_visible()
    assert page.locator("html").get_attribute("lang") == "de"
    playwright.expect(page.get_by_label("Domäne", exact=True)).to_have_value("base")  # once the domains are known
    page.get_by_label("Sprache dieser Seite").select_option("en")
    playwright.expect(page.get_by_role("button", name="Translate", exact=True)).to_be_visible()
    page.reload()
    playwright.expect(page.get_by_role("button", name="Translate", exact=True)).to_be_visible()
    page.close()


def test_the_address_of_no_domain_is_said(open_page: Windows) -> None:
    page = open_page(path="/d/nothing/")
    playwright.expect(page.locator("#problem")).to_contain_text("no domain “nothing”")
    playwright.expect(page.get_by_label("Domain", exact=True)).to_have_value("small")
    page.close()


def test_everybody_can_use_it(page: Page) -> None:
    """axe-core finds nothing, with all open that can be opened; nothing is wider than the window of a phone."""
    page.locator(".glossary").evaluate("details => (details.open = true)")
    translate(page, f"Satz 3 ja ja ja\n{'lang' * 15}")
    row = sentence(page, 1)
    row.locator(".word").last.click()  # which is one token
    row.get_by_role("button", name="Best matches").click()
    row.get_by_role("button", name="Correct").click()
    playwright.expect(row.locator(".matches")).not_to_contain_text("…")
    require_accessible(page)
    row.get_by_role("button", name="Cancel").click()


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


def test_a_memory_that_is_done_takes_nothing_from_who_works(open_page: Windows) -> None:
    page = open_page()
    done = {"id": "2", "domain": "own", "name": "own.tsv", "state": "done", "done": 1, "of": 1}
    page.route("**/v1/domains/own/memories**", lambda route: route.fulfill(status=202, json=done))
    page.get_by_label("Make a domain from them").check()
    for text, chosen in (("etwas.", "small"), ("", "own")):
        page.get_by_label("Text to translate").fill(text)
        page.get_by_label("Choose files").set_input_files({"name": "own.tsv", "mimeType": "", "buffer": b"x\ty\n"})
        page.get_by_role("button", name="Send").click()
        row = page.locator("#sent li").first
        playwright.expect(row).to_contain_text("is now part of the domain own.")
        playwright.expect(page.get_by_role("status")).to_contain_text("is now part of")
        playwright.expect(page.get_by_label("Domain", exact=True)).to_have_value(chosen)
        choose(page, "small")
    translate(page, "etwas.")
    row.get_by_role("button", name="Translate with own").click()
    playwright.expect(page.get_by_label("Domain", exact=True)).to_have_value("own")
    all_there(page)
    page.close()


@pytest.mark.soak
def test_a_memory_becomes_a_domain(page: Page) -> None:
    page.get_by_label("Make a domain from them").check()
    memory = {"name": "own.tsv", "mimeType": "text/plain", "buffer": b"Haus\thouse\nBaum\ttree\n"}
    page.get_by_label("Choose files").set_input_files(memory)  # type: ignore[arg-type]
    page.get_by_label("Name of the domain").fill("../x")
    page.get_by_role("button", name="Send").click()
    playwright.expect(page.locator("#problem")).to_contain_text("Enter a name for the domain")
    page.get_by_label("Choose files").set_input_files(memory)  # type: ignore[arg-type]
    page.get_by_label("Name of the domain").fill("houses")
    page.get_by_role("button", name="Send").click()
    row = page.locator("#sent li").first
    playwright.expect(row).to_contain_text("own.tsvis now part of the domain houses.")
    row.get_by_role("button", name="Translate with houses").click()
    playwright.expect(page.get_by_label("Domain", exact=True)).to_have_value("houses")
    playwright.expect(page.locator("#domain-facts")).to_contain_text("2 segments")
    translate(page, "Haus", "houses")
    playwright.expect(sentence(page, 0).locator(".words")).to_have_text("house")


def test_the_text_or_a_choice_decides_between_two_models(open_page: Windows) -> None:
    with served(ServiceConfig(device="cpu"), Translator(device="cpu")) as address:
        page = open_page(address)
        directions = page.get_by_label("Direction")
        playwright.expect(directions).to_have_text("as the text looksde → enen → de")
        words = page.locator(".words").first
        translate(page, "Datei speichern", "base")
        playwright.expect(words).to_have_text("Save File")
        playwright.expect(words).to_have_attribute("lang", "en")
        translate(page, "Save the file.", "base")
        playwright.expect(words).to_have_text("Speichern Sie die Datei.")
        page.get_by_label("Text to translate").fill("OK")
        page.keyboard.press("Control+Enter")
        playwright.expect(page.get_by_role("alert")).to_contain_text("language of the text is not clear")
        directions.select_option("en → de")
        all_there(page)
        playwright.expect(words).to_have_attribute("lang", "de")
        playwright.expect(page.get_by_role("alert")).to_be_hidden()


def test_the_model_alone_is_asked_in_the_languages_of_the_domain(open_page: Windows) -> None:
    """Trap: a request with a glossary needs both languages, and the model alone has no memory that states them."""
    page = open_page()
    languages = {"source_language": "de", "target_language": "en"}
    facts = {"memory": True, "segments": 1, "entries": 1, "generation": 1, "deletable": False}
    base = {"name": "base", "default": False, "memory": False, **languages}
    domains = [
        {**base, "directions": [{"source": "de", "target": "en"}]},
        {"name": "german", "default": True, **languages, **facts},
    ]
    page.route("**/v1/domains", lambda route: route.fulfill(json={"domains": domains}))
    asked: dict[str, Any] = {}

    def answer(route: Route) -> None:
        body = route.request.post_data_json or {}
        asked[body["domain"]] = {name: body[name] for name in languages if name in body}
        route.fulfill(body="")

    page.route("**/v1/translate", answer)
    page.reload()
    playwright.expect(page.get_by_label("Domain", exact=True)).to_have_value("german")
    page.get_by_label("Text to translate").fill("OK")
    page.keyboard.press("Control+Enter")
    playwright.expect(page.get_by_role("alert")).to_be_visible()
    assert asked == {"german": {}, "base": languages}
    page.close()
