"""The page as it is served: its files, what the browser is told of them, and that its parts fit together."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from fastapi.testclient import TestClient

from knnmt.settings import described
from knnmt.translator.settings import TranslationSettings

PLACE = files("knnmt.service").joinpath("page")
SCRIPTS = {each.name: each.read_text(encoding="utf-8") for each in PLACE.iterdir() if each.name.endswith(".js")}
PAGE = PLACE.joinpath("index.html").read_text(encoding="utf-8")
LANGUAGES = re.findall(r'<option value="([a-z]+)" lang=', PAGE)
STRINGS = {f"{language}.js": SCRIPTS[f"{language}.js"] for language in LANGUAGES}
NODE = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
PART = re.compile(r"\w+|\s+|[^\w\s]")
MODULES = {name: text for name, text in SCRIPTS.items() if name not in STRINGS}


def strings_of(text: str) -> dict[str, str]:
    return dict(re.findall(r'^  (\w+):\s+"((?:[^"\\]|\\.)*)",$', text, re.MULTILINE))


def ids() -> list[str]:
    return re.findall(r'\bid="([^"]+)"', PAGE)


def test_the_browser_is_told_to_take_nothing_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/page/main.js", "/d/small/", "/d/small/page/main.js"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"


def test_every_file_that_the_page_names_is_served_and_no_other(client: TestClient) -> None:
    imported = re.findall(r'from "\./([^"]+)"', "\n".join(MODULES.values()))
    named = {f"page/{name}" for name in imported} | set(re.findall(r'(?:src|href)="(page/[^"]+)"', PAGE))
    assert {f"page/{name}" for name in SCRIPTS} <= named
    for name in named:
        assert client.get(f"/{name}").status_code == 200, name
    for name in ("other.js", "..%2fapp.py", "%2fetc%2fpasswd", "__init__.py", "%00"):
        assert client.get(f"/page/{name}").status_code == 404, name


def test_the_page_has_a_control_for_every_setting_of_texts_with_the_defaults_of_the_service(client: TestClient) -> None:
    controls = {each["name"]: each for each in client.get("/page/settings.json").json()}
    expected = {
        name
        for name, each in described(TranslationSettings).items()
        if each.group != "retrieval" and "http" in each.interfaces and {"texts", "service"} <= {*each.uses}
    }
    assert set(controls) == expected >= {"beam", "protect", "placeholders", "exact_matches"}
    assert [controls["beam"][name] for name in ("kind", "least", "usual", "documents")] == ["int", 1, 5, True]
    assert [controls["protect"][name] for name in ("kind", "usual", "documents")] == ["bool", "yes", False]
    assert controls["placeholders"]["parameter"] == "placeholder"
    assert controls["length_penalty"]["usual"] == "the checkpoint's"
    for name in expected:
        assert f"setting_{name}" in strings_of(STRINGS["en.js"])


def test_a_file_is_sent_again_only_where_it_changed(client: TestClient) -> None:
    tag = client.get("/page/main.js").headers["etag"]
    again = client.get("/page/main.js", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/page/main.js", headers={"if-none-match": '"other"'}).status_code == 200


def test_the_page_has_no_script_or_style_of_its_own_and_nothing_is_parsed() -> None:
    assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:", PAGE)
    assert re.findall(r"<script[^>]*>([^<]*)</script>", PAGE) == [""]
    for name, text in MODULES.items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|DOMParser", text
        ), name
        assert "http" not in text, name


@pytest.mark.parametrize("language", LANGUAGES)
def test_everything_is_said_in_every_language(language: str) -> None:
    english, here = strings_of(STRINGS["en.js"]), strings_of(STRINGS[f"{language}.js"])
    assert {"de", "en"} <= set(LANGUAGES)
    assert list(here) == list(english)
    assert len(here) == STRINGS[f"{language}.js"].count('",\n')
    for name, text in english.items():
        assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", here[name])), name


def test_every_string_is_used_and_none_is_missing() -> None:
    known = strings_of(STRINGS["en.js"])
    modules = "\n".join(MODULES.values())
    asked = set(re.findall(r'told\("(\w+)"', modules)) | set(re.findall(r'data-text="(\w+)"', PAGE))
    assert asked <= set(known)
    for name in known:
        assert (
            name in asked
            or name.startswith(("kind_", "stage_", "setting_"))
            or re.search(rf'\b{name}\b["\',:]', modules)
        ), name


def test_ids_and_labels_match() -> None:
    assert len(ids()) == len(set(ids()))
    referred = re.findall(r'\b(?:for|aria-labelledby|aria-describedby)="([^"]+)"', PAGE)
    assert set(referred) <= set(ids())
    assert set(re.findall(r'byId\("([^"]+)"\)', "\n".join(MODULES.values()))) <= set(ids())
    fields = re.findall(r'<(?:input|textarea|select) id="([^"]+)"', PAGE)
    labelled = set(re.findall(r'<label[^>]* for="([^"]+)"', PAGE)) | {"language"}  # which stands within its label
    assert set(fields) <= labelled


@NODE
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_module_is_javascript(name: str) -> None:
    checked = subprocess.run(
        ["node", "--check", "--input-type=module"], input=SCRIPTS[name], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


def of_node(script: str, name: str) -> Any:
    """What a script prints as JSON that has the functions of a module of the page."""
    done = subprocess.run(
        ["node", "--input-type=module"], input=f"{SCRIPTS[name]}\n{script}", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@NODE
def test_differences_keep_as_much_as_two_texts_have_in_common() -> None:
    chance = random.Random(5)
    texts = [" ".join(chance.choices(["a", "b", "c", "ä.", "–"], k=chance.randrange(8))) for _ in range(60)]
    pairs = [("", "a"), ("a b", "a b"), *zip(texts[::2], texts[1::2], strict=True)]
    found = of_node(
        f"console.log(JSON.stringify({json.dumps(pairs)}.map((each) => differences(...each))))", "pieces.js"
    )
    for (text, other), pieces in zip(pairs, found, strict=True):
        assert "".join(piece for piece, _ in pieces) == text
        parts = [(part, is_new) for piece, is_new in pieces for part in PART.findall(piece)]
        kept = sum(not is_new for _, is_new in parts)
        common = longest_common(PART.findall(text), PART.findall(other))
        around = zip(parts, parts[1:], parts[2:], strict=False)
        parting = sum(one[1] and not part.strip() and last[1] for one, (part, _), last in around)
        assert common - parting <= kept <= common, (text, other, pieces)


def longest_common(one: list[str], other: list[str]) -> int:
    """By trying all that can be left out."""

    @cache
    def longest(i: int, j: int) -> int:
        if i == len(one) or j == len(other):
            return 0
        return max(longest(i + 1, j), longest(i, j + 1), (one[i] == other[j]) + longest(i + 1, j + 1))

    return longest(0, 0)


@NODE
def test_what_is_around_a_span_is_cut_at_words_and_counts_whole_characters() -> None:
    text = "Das 🙂 ist ein Satz mit 🙃 vielen Wörtern, der weitergeht"
    spans = [(start, start + 3) for start in range(len(text) - 3)] + [(len(text), len(text))]
    asked = f"{json.dumps(spans)}.map((span) => around({json.dumps(text)}, span, 20))"
    for (start, end), (before, marked, after) in zip(
        spans, of_node(f"console.log(JSON.stringify({asked}))", "pieces.js"), strict=True
    ):
        assert marked == text[start:end]
        left, right = before.removeprefix("… "), after.removesuffix(" …")
        assert text[:start].endswith(left)
        assert text[end:].startswith(right)
        assert len(left + marked + right) <= 20
        assert left == text[:start] or not left or text[: start - len(left)].endswith(" ")
        assert right == text[end:] or not right or text[end + len(right)] == " "


def test_sentences_are_the_text(client: TestClient) -> None:
    text = "  Am 3. Mai ist z. B. frei. Danach nicht!\n\nDatei öffnen\nEnde  "
    cut = client.post("/v1/sentences", json={"text": text}).json()["sentences"]
    assert "".join(cut) == text
    assert [each.strip() for each in cut] == ["Am 3. Mai ist z. B. frei.", "Danach nicht!", "Datei öffnen", "Ende"]
    assert client.post("/v1/sentences", json={"text": ""}).json() == {"sentences": [], "language": None}
    assert client.post("/v1/sentences", json={"text": "x" * 1_000_001}).status_code == 413


def test_words_with_evidence(client: TestClient) -> None:
    asked = {"texts": ["etwas anderes", "Satz 3 ja ja ja"], "evidence": True}
    made, taken = client.post("/v1/translate", json=asked).json()["translations"]
    assert "".join(made["text"][slice(*word["span"])] for word in made["words"]) == "".join(made["text"].split())
    assert [number for word in made["words"] for number in word["tokens"]] == list(range(len(made["tokens"])))
    assert all(0 <= word["share"] <= 1 for word in made["words"])
    assert taken["kind"] == "exact match"
    assert "words" not in taken
