"""Which shipped model memories, documents and texts choose, by what they state and by how they look."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from knnmt import SegmentPair
from knnmt.corpus.language_guess import recognise
from knnmt.corpus.options import ReadingConfig
from knnmt.documents.direction import model_for_document
from knnmt.documents.document import Document
from knnmt.documents.memory_languages import model_for, model_for_memories
from knnmt.documents.opening import open_document
from knnmt.engine.model_choice import choose_model, model_for_texts
from knnmt.engine.shipped import shipped_model, shipped_models
from knnmt.errors import LanguagesRequiredError, SettingError

GERMAN = ["Die Datei wird gespeichert.", "Öffnen Sie das Fenster.", "Abbrechen"]
ENGLISH = ["The file is saved.", "Open the window.", "Cancel"]


def tmx(*languages: str, header: str = "*all*") -> str:
    variants = "".join(f'<tuv xml:lang="{tag}"><seg>in {tag}</seg></tuv>' for tag in languages)
    units = f"<tu>{variants}</tu>" * 3
    return f'<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="{header}"/><body>{units}</body></tmx>\n'


def xliff(source: str, target: str) -> str:
    unit = '<trans-unit id="1"><source>a</source><target>b</target></trans-unit>'
    languages = f'source-language="{source}" target-language="{target}"'
    return f'<?xml version="1.0"?>\n<xliff version="1.2"><file {languages}><body>{unit}</body></file></xliff>\n'


def table(*sides: list[str]) -> str:
    return "".join("\t".join(row) + "\n" for row in zip(*sides, strict=True))


PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n{}"\n\nmsgid "a"\nmsgstr "b"\n'
MEMORIES = [
    ("a.tmx", tmx("de", "en", header="de-DE"), "de-en"),
    ("a.tmx", tmx("de", "en", header="en-US"), "en-de"),
    ("a.tmx", tmx("de", "fr", "en", header="de"), "de-en"),
    ("a.xlf", xliff("en-GB", "de-CH"), "en-de"),
    ("a.xlf", xliff("de", "en"), "de-en"),
    ("a.po", PO.format("Language: de\\n"), "en-de"),
    ("a.po", PO.format("X-Source-Language: de\\nLanguage: en\\n"), "de-en"),
    ("app.de.po", PO.format(""), "en-de"),
    ("a.tsv", table(ENGLISH, GERMAN), "en-de"),
    ("a.csv", table(GERMAN, ENGLISH).replace("\t", ";"), "de-en"),
    ("a.ts", '<!DOCTYPE TS>\n<TS version="2.1" sourcelanguage="en" language="de_DE"></TS>\n', "en-de"),
]


@pytest.mark.parametrize(("name", "content", "expected"), MEMORIES)
def test_a_memory_chooses_by_what_it_states_or_how_it_looks(
    tmp_path: Path, name: str, content: str, expected: str
) -> None:
    memory = tmp_path / name
    memory.write_text(content, encoding="utf-8")
    assert model_for_memories([memory], None, None, ReadingConfig()).name == expected


def test_the_first_of_two_files_is_the_source(tmp_path: Path) -> None:
    for name, texts in {"a.de": GERMAN, "a.en": ENGLISH, "source.txt": ENGLISH, "target.txt": GERMAN}.items():
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    (tmp_path / "x_de.json").write_text('{"a": "Datei"}', encoding="utf-8")
    (tmp_path / "x_en.json").write_text('{"a": "File"}', encoding="utf-8")

    def chosen(*names: str) -> str:
        return model_for_memories([tmp_path / name for name in names], None, None, ReadingConfig()).name

    assert chosen("a.de", "a.en") == "de-en"
    assert chosen("a.en", "a.de") == "en-de"
    assert chosen("source.txt", "target.txt") == "en-de"
    assert chosen("x_en.json", "x_de.json") == "en-de"
    assert chosen("x_de.json", "x_en.json") == "de-en"


def test_what_is_unclear_contradicts_or_has_no_model_is_an_error_that_says_what_to_type(tmp_path: Path) -> None:
    def memory(name: str, content: str) -> Path:
        (tmp_path / name).write_text(content, encoding="utf-8")
        return tmp_path / name

    def choose(*paths: Path, source: str | None = None, target: str | None = None) -> str:
        return model_for_memories(paths, source, target, ReadingConfig()).name

    both = memory("both.tmx", tmx("de", "en"))
    forth, back = memory("forth.xlf", xliff("de", "en")), memory("back.xlf", xliff("en", "de"))
    with pytest.raises(LanguagesRequiredError, match=r"both\.tmx: the source language is not clear"):
        choose(both)
    assert choose(both, source="en") == "en-de"
    assert choose(both, target="en") == "de-en"
    with pytest.raises(LanguagesRequiredError, match=r"forth.xlf goes from de to en, but .*back.xlf from en to de"):
        choose(forth, back)
    catalog = memory("de.po", PO.format("Language: de\\n"))
    assert choose(forth, catalog) == choose(catalog, forth) == "de-en"
    with pytest.raises(SettingError, match=r"from de-AT to fr \(as .* states\); .*--model Helsinki-NLP/opus-mt-de-fr$"):
        choose(memory("french.xlf", xliff("de-AT", "fr")).with_name("french.xlf"))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "de.json").write_text('{"a": "Datei"}', encoding="utf-8")
    (folder / "en.json").write_text('{"a": "File"}', encoding="utf-8")
    with pytest.raises(LanguagesRequiredError, match="folder: the source language is not clear"):
        choose(folder)
    (folder / "en.json").unlink()
    (folder / "a.xlf").write_text(xliff("en", "de"), encoding="utf-8")
    assert choose(folder) == "en-de"


def test_pairs_choose_and_are_all_still_to_be_read() -> None:
    pairs = [SegmentPair(source, target, "test") for source, target in zip(ENGLISH, GERMAN, strict=True)]
    choice, read = model_for(iter(pairs), None, None)
    assert choice.name == "en-de"
    assert [*read] == pairs  # type: ignore[misc]
    with pytest.raises(LanguagesRequiredError, match="the pairs: the source language is not clear"):
        model_for([SegmentPair("OK", "OK", "test")], None, None)


DOCUMENTS: list[tuple[str, str, tuple[str | None, str | None], str]] = [
    ("a.xlf", xliff("en", "de"), (None, None), "en-de"),
    ("a.xlf", xliff("en", "de"), ("de", None), "de-en"),
    ("a.po", PO.format("Language: de\\n"), (None, None), "en-de"),
    ("a.md", "# Titel\n\nDie Datei wird gespeichert.\n", (None, None), "de-en"),
    ("a.json", '{"a": "The file is saved."}', (None, None), "en-de"),
    ("film.de.srt", "1\n00:00:01,000 --> 00:00:02,000\nOK.\n", (None, None), "de-en"),
]


@pytest.mark.parametrize(("name", "content", "asked", "expected"), DOCUMENTS)
def test_a_document_chooses(
    tmp_path: Path, name: str, content: str, asked: tuple[str | None, str | None], expected: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert model_for_document(open_document(tmp_path / name), PurePath(name), asked).name == expected


def test_texts_contradict_a_catalog_that_states_only_its_target(tmp_path: Path) -> None:
    def catalog(target: str, source: str) -> Document:
        (tmp_path / "a.po").write_text(
            PO.format(f"Language: {target}\\n").replace('"a"', f'"{source}"'), encoding="utf-8"
        )
        return open_document(tmp_path / "a.po")

    for target, source, other in (("en_GB", "User settings", "en-de"), ("de", "Abbrechen", "de-en")):
        document = catalog(target, source)
        with pytest.raises(SettingError, match=rf"into {target}, but its texts look .* add --ignore-stated-languages"):
            model_for_document(document, PurePath("a.po"), (None, None))
        document.ignores_languages = True
        assert model_for_document(document, PurePath("a.po"), (None, None)).name == other
    assert model_for_document(catalog("en", "Cancel"), PurePath("a.po"), ("de", None)).name == "de-en"
    with pytest.raises(SettingError, match=r"from fr to de .*--model Helsinki-NLP/opus-mt-fr-de$"):
        model_for_document(catalog("de", OTHER_LANGUAGES["fr"]), PurePath("a.po"), (None, None))


def test_a_document_without_a_letter_needs_no_language(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": "12 %"}', encoding="utf-8")
    assert model_for_document(open_document(tmp_path / "a.json"), PurePath("a.json"), (None, None)).name == "de-en"


def test_ignored_statements_do_not_choose(tmp_path: Path) -> None:
    (tmp_path / "a.xlf").write_text(xliff("en", "de").replace("<source>a", f"<source>{GERMAN[0]}"), encoding="utf-8")
    document = open_document(tmp_path / "a.xlf")
    document.ignores_languages = True
    assert model_for_document(document, PurePath("a.xlf"), (None, None)).name == "de-en"


@pytest.mark.parametrize("text", ["Danke!", "Ja.", *GERMAN, "Einstellungen", "Tschüss"])
def test_short_german_texts_are_recognised(text: str) -> None:
    assert recognise(text) == "de"


@pytest.mark.parametrize("text", ["Thanks!", "Yes.", *ENGLISH, "Settings"])
def test_short_english_texts_are_recognised(text: str) -> None:
    assert recognise(text) == "en"


@pytest.mark.parametrize("text", ["", "OK", "Software", "Name:", "12 34", "Ďalší krok", "Użytkownik: admin"])
def test_other_texts_are_not_clear(text: str) -> None:
    assert recognise(text) is None


OTHER_LANGUAGES = {  # each with words or letters that German and English also have
    "fr": "Bonjour tout le monde, comment allez-vous ?",
    "es": "El archivo se ha eliminado correctamente",
    "nl": "Het bestand kan niet worden geopend",
    "sv": "Filen har inte sparats och kan inte öppnas",
    "ru": "Файл ok.txt удалён",
    "zh": "文件已删除",
    "ja": "ファイルを保存",
}


@pytest.mark.parametrize("tag", OTHER_LANGUAGES)
def test_other_languages_are_not_taken_for_german_or_english(tag: str, tmp_path: Path) -> None:
    text = OTHER_LANGUAGES[tag]
    assert recognise(text) == tag
    with pytest.raises(SettingError, match=rf"\(the text looks .*--model Helsinki-NLP/opus-mt-{tag}-en$"):
        model_for_texts(["OK", text], "the text")
    (tmp_path / "a.tsv").write_text(table([text], ENGLISH[:1]), encoding="utf-8")
    with pytest.raises(SettingError, match=f"a.tsv: no shipped model translates from {tag} to en"):
        model_for_memories([tmp_path / "a.tsv"], None, None, ReadingConfig())
    (tmp_path / "a.json").write_text(json.dumps({"a": text}), encoding="utf-8")
    with pytest.raises(SettingError, match=f"from {tag} to another language"):
        model_for_document(open_document(tmp_path / "a.json"), PurePath("a.json"), (None, None))


def test_texts_choose_together() -> None:
    assert model_for_texts(["OK", "Software", "Die Datei"], "the text").name == "de-en"
    assert model_for_texts(["12 %", ""], "the text").name == "de-en"  # which any model leaves as it is
    with pytest.raises(LanguagesRequiredError, match="the text: the source language is not clear"):
        model_for_texts(["OK"], "the text")


CHOICES: list[tuple[Callable[[], object], str]] = [
    (lambda: choose_model(None, "fr", "a.po", ""), "a.po: no shipped model translates from another language to fr"),
    (lambda: choose_model("fr", None, "a.po", ""), "--model Helsinki-NLP/opus-mt-fr-en$"),
    (lambda: choose_model("en", "pt-BR", "a.po", ""), "--model Helsinki-NLP/opus-mt-en-pt$"),
    (lambda: choose_model("de", "de", "a.po", ""), "from de to de.*--model NAME$"),
    (lambda: choose_model("fr;touch x", "en", "a.po", ""), "--model NAME$"),
    (lambda: choose_model("fr", "$(id)", "a.po", ""), "--model NAME$"),
]


@pytest.mark.parametrize(("choose", "message"), CHOICES)
def test_languages_without_a_model(choose: Callable[[], object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        choose()


def test_shipped_models_by_their_languages() -> None:
    assert shipped_models() == {"de-en": ("de", "en"), "en-de": ("en", "de")}
    assert shipped_model("deu_Latn", "en-GB") == "de-en"
    assert shipped_model(None, None) is None
