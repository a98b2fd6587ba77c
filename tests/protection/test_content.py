"""What is wrong with the content of a translation."""

from __future__ import annotations

import pytest

from knnmt.protection.content import content_faults, repetition
from knnmt.protection.placeholder_syntax import PlaceholderSyntax


def faults(source: str, target: str, *kinds: str, shortest: float | None = None) -> list[str]:
    syntax = PlaceholderSyntax(kinds or ("text",))
    return [each.message for each in content_faults(source, target, (), syntax, shortest)]


@pytest.mark.parametrize(
    ("source", "target", "has"),
    [
        ("Fluss hinzufügen", "Add %(e)s", ["%(e)s"]),
        ("Fluss {0}", "Flow {0} {0}", ["{0}"]),
        ("Der Fluss", "The <b>flow", ["<b>"]),
        ("Schreiben Sie uns", "Write to a@knnmt.example", ["a@knnmt.example"]),
        ("Siehe dort", "See https://knnmt.example/x", ["https://knnmt.example/x"]),
        ("in Liste", "[in] list", ["[", "]"]),
        ("Noch __tage__", "___tage__ left", ["_"]),
        ("Im Jahr", "In 1999", ["the number 1999"]),
        ("Siehe <x>", "See <x>", []),
        ("Der Fehler e", "Error e", []),
        ("Zwölf Monate", "12 months", []),
        ("Nr. 1.000", "No. 1,000", []),
    ],
)
def test_what_the_source_lacks_is_named(source: str, target: str, has: list[str]) -> None:
    assert faults(source, target) == [f"has {each}, which the source lacks" for each in has]


def test_the_format_decides_what_is_a_placeholder() -> None:
    assert faults("~a und ~b", "~a ~a", "lisp-format")
    assert not faults("~a und ~b", "~a ~a")


@pytest.mark.parametrize(
    ("source", "target", "lost"),
    [
        ("~~name~~ löschen?", "Delete ~name~~?", ["~~"]),
        ("^^name^^ und ^x^", "^^name^^ and ^x", ["^"]),
        ("Willkommen bei ||name||", "Welcome to ||name|", ["||"]),
        ("::name:: fehlt", ":name:: is missing", ["::"]),
        ("<<name>> fehlt", "<<name> is missing", [">>"]),
        ("Datei [neu]", "New file", ["[", "]"]),
        ("a = b | c", "a = b or c", ["|"]),
        ("C++ und C#", "C++ and C#", []),
        ("Nutzer*innen und Leser_innen, ~5 Tage, #1 & mehr", "Users and readers, about 5 days, No. 1 and more", []),
        ("Halt!! Wirklich?? -- Ja...", "Stop! Really? – Yes…", []),
    ],
)
def test_signs_that_are_lost_show_a_changed_placeholder(source: str, target: str, lost: list[str]) -> None:
    assert faults(source, target) == [f"lacks {each} of the source" for each in lost]


@pytest.mark.parametrize("target", ["", " ", ".", "…", "—"])
def test_a_translation_without_words_is_empty(target: str) -> None:
    assert faults("Einträge", target) == ["is empty"]
    assert faults("—", target) == []


def test_a_short_translation_is_short_for_its_memory() -> None:
    source, target = "Hier steht ein Satz mit vielen Wörtern.", "One sentence, no more."
    assert faults(source, target) == []
    assert faults(source, target, shortest=0.5) == []
    assert faults(source, target, shortest=0.6) == ["is very short: 22 characters for 39"]
    assert faults(source, "Sentence.") == ["is very short: 9 characters for 39"]
    assert faults("Ja, das stimmt", "Yes", shortest=0.9) == []


@pytest.mark.parametrize(
    ("source", "target", "is_short"),
    [
        ("Hier steht ein Satz mit vielen Wörtern.", "A long sentence", False),
        ("Hier steht ein Satz mit vielen Wörtern.", "A sentence.", True),
        ("नई फ़ाइल को अभी सहेजें और खिड़की बंद करें", "Save the new file now.", False),  # three bytes a letter
        ("Закройте окно и сохраните файл сейчас", "Close all, save.", False),  # two
        ("Close the window and save the file right now, please.", "请立即关闭窗口并保存文件", False),
        ("Close the window and save the file right now, please.", "关闭窗口", True),
        ("请立即关闭窗口并保存文件", "Close it.", True),
    ],
)
def test_without_a_memory_a_short_translation_is_short_in_letters(source: str, target: str, is_short: bool) -> None:
    expected = [f"is very short: {len(target)} characters for {len(source)}"] if is_short else []
    assert faults(source, target) == expected


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("for three weeks, for three weeks", "for three weeks"),
        ("new new new file", "new"),
        ("Kreatinininininine", "in"),
        ("step by step", ""),
        ("If it is an error, an error is raised", ""),
        ("If it is an error an error is raised", "an error"),
        ("no, no", ""),
        ("1,000,000,000", ""),
        ("----------", ""),
    ],
)
def test_repetitions(text: str, twice: str) -> None:
    assert repetition(text) == twice


@pytest.mark.parametrize(
    ("source", "target", "mark"),
    [
        ("Seite(n)", "Page(s", "("),
        ("[neu] Datei", "new] File", "["),
        ('Datei "a" fehlt', 'File "a is missing', '"'),
        ("a) Datei", "a) File", ""),
        ("Seite(n)", "Pages", ""),
    ],
)
def test_a_bracket_needs_its_other_half(source: str, target: str, mark: str) -> None:
    assert faults(source, target) == ([f"has a {mark} without its other half"] if mark else [])


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("The order was not released. errand.", "errand"),
        ("Order total (excl. tax), approx. five", ""),
        ("It is done. Nothing is left.", ""),
        ("Made with Vite e.g. today. iPhone", ""),
    ],
)
def test_nothing_follows_the_end_of_a_sentence(target: str, word: str) -> None:
    assert faults("Der Auftrag ist hier.", target) == ([f"goes on after its end with {word!r}"] if word else [])
    assert faults("Das ist fertig. npm läuft noch weiter", target) == []


def test_a_repetition_of_the_source_is_no_fault() -> None:
    assert faults("Nein, nein, nein!", "No, no, no!") == []
    assert faults("Nein!", "No, no, no!") == ["repeats 'no'"]
