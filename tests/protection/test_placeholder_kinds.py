"""The table of placeholders: each kind is found where it counts, and only there; language is not found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.errors import SettingError
from knnmt.protection.placeholder_kinds import ANYWHERE, KINDS, PlaceholderKind
from knnmt.protection.placeholder_syntax import MAX_PATTERNS, PLAIN, PlaceholderSyntax, checked_patterns
from knnmt.protection.placeholders import Kind, find

PAGE = (Path(__file__).parents[2] / "docs" / "placeholders.md").read_text(encoding="utf-8")
PLACES = sorted({place for kind in KINDS for place in kind.where.split()} - {ANYWHERE})
EXAMPLES = [
    (kind, place, example) for kind in KINDS for place in kind.where.split() for example in kind.examples.split()
]

# Not written with the patterns in view: what manuals, catalogs and resource files of real programs have.
UNSEEN = {
    "c-format": ["%-20.20s", "%*d", "%+.3e", "%lu", "%zu", "%hhx", "%2$*1$d", "%'d", "%#x", "%jd", "%<PRIu32>", "% d"],
    "objc-format": ["%@", "%1$@", "%ld", "%lu"],
    "python-format": ["%(user)s", "%(total).2f", "%(n)03d", "%(app_label)r", "%i", "%r"],
    "python-brace-format": ["{}", "{0!r:>10}", "{user.name}", "{total:,.2f}", "{rows[0]}", "{when:%Y-%m-%d}"],
    "java-format": ["{0}", "{1,date,medium}", "{2,number,#.##}"],
    "csharp-format": ["{0,-10:N2}", "{1:yyyy-MM-dd}", "{2:C}"],
    "ruby-format": ["%{count}", "%<total>.1f", "%<name>s"],
    "perl-brace-format": ["{first_name}"],
    "php-format": ["%1$s", "%2$05.2f", "%d"],
    "qt-format": ["%1", "%L2", "%12"],
    "qt-plural-format": ["%n", "%Ln"],
    "boost-format": ["%1%", "%2%"],
    "object-pascal-format": ["%0:s", "%1:d", "%s"],
    "lisp-format": ["~a", "~s", "~10d", "~%", "~:@(", "~D"],
    "sh-format": ["$count", "${user}"],
    "javascript-format": ["%s", "%o", "%O", "%j"],
    "gcc-internal-format": ["%qE", "%<", "%>", "%qs", "%D"],
    "go-format": ["%v", "%+v", "%[1]d", "%T"],
    "unflagged": ["@site", "!link", "%user-name", "@total"],
    "po": ["--force", "--output-dir"],
    "json": [
        *("{{value}}", "{{- html}}", "{{when, date}}", "$t(key)", "$t(common:title)", "__count__", "__node_id__"),
        *("@:message.home", "@.upper:word", "{count}", "$1", "$USER$", ":attribute", "&nbsp;", "some_key", "fileName"),
        *("dd/MM/yyyy", "hh:mm", "YYYY-MM-DD"),
    ],
    "yaml": ["%{model}", "%{attribute}", "__value__", "%<precision>.2f"],
    "android": ["%1$s", "%2$d", "@string/title", "@android:string/cancel", "%%", "&#8230;"],
    "text": [
        *("{{#each users}}", "{{/each}}", "{{> header}}", "{{{raw}}}", "{% endblock %}", "<%= user.name %>"),
        *("[%count%]", "%appdata%", "%%name%%", "[% total %]", r"{\an8}", r"{\fad(200,200)}", r"{\c&H00FFFF&\i1}"),
        *("ftp://host.example/a", "first.last@mail.example.org", "https://example.org/?q=a&b=c#d", "git://x.example/y"),
        *("OmegaT.css", "settings.json", "README.md", "*.docx", "archive.tar.gz", "docs/guide.html", "my-file_2.PDF"),
        *(
            "os.path.join()",
            "std::swap()",
            "MAX_LENGTH",
            "__init__()",
            "first_second_third",
            "innerHtml",
            "onClickSave",
        ),
        *(r"\ref{eq:1}", r"\cite[chap.~2]{lamport94}", r"\textbf", r"\includegraphics[width=3cm]{logo}", r"\emph"),
        *("{$a->fullname}", "{$item.price|number_format:2}", "{$smarty.now}", "*|LIST:ADDRESS|*", "*|IF:FNAME|*"),
        *("$$E = mc^2$$", r"$$\frac{a}{b}$$", "$$i$$", "###USERNAME###", "###admin.url###", "##lang.ticket.url##"),
        *("##member_name##", "#SITE_URL#", "#EMAIL#", "@PACKAGE_NAME@", "@project.version@", "@@HOST@@", "@@app-id@@"),
        *("/etc/hosts", "~/.config", r"C:\Users\x", "&euro;", "&#x20AC;", r"\u20ac", "@{user}", "{@html}", "{#if}"),
    ],
}

LANGUAGE = [
    "Die Nutzer_innen und Leser_in, LeserInnen und Mitarbeiter:innen kommen.",
    "d.h. u.a. z.B. i.d.R. usw. bzgl. v.a. Dr. Nr. etc.",
    "Das sind 50%ige Lösungen, 20 % der Fälle und 100 %, also 5% mehr.",
    "Er sagte: ja. Und/oder nein. R&D, AT&T & Co., C++ und C#",
    "S_peichern", "Be_arbeiten", "&Datei", "~Ansicht", "Alles _auswählen", "E-Mail und WLAN, iPhone und eBay",
    "Wirklich?! So... Ja; nein - doch – genau — gut.",
    "Das kostet $$, nicht $$$; #1 und # 2 # von #Wien# oder #eins#zwei, ## Titel ##, ~~alt~~ *neu* | *so* |",
    "HTML/CSS und Post/Zip, Text/Doc oder Import/Export/Log",
    "Freitag @ Wien @ Graz, @anna@beispiel und ###",
    "(siehe oben) [Anmerkung] »Zitat« 'so' \"so\" {Aber das hier nicht}",
    "Das kostet 5 € oder $5 (ca. 12.000.000 Yen), um 12:30 Uhr am 1.2.2024.",
    "Ein Satz.Noch einer ohne Leerzeichen. Ende.",
    "1. Januar, 2. Februar; a) erstens b) zweitens *fett* **sehr** __wichtig__ _betont_",
]  # fmt: skip


def exact(text: str, *text_kinds: str) -> list[str]:
    return [
        each.text for each in find(text, syntax=PlaceholderSyntax(text_kinds or ("text",))) if each.kind is Kind.EXACT
    ]


@pytest.mark.parametrize(("kind", "place", "example"), EXAMPLES, ids=lambda each: getattr(each, "name", each))
def test_every_example_is_found_where_it_counts(kind: PlaceholderKind, place: str, example: str) -> None:
    for text in (example, f"Die Datei {example} fehlt", f"({example})", f"„{example}“", f"Hier: {example}."):
        assert exact(text, place) == [example], text


@pytest.mark.parametrize(("place", "example"), [(place, each) for place, found in UNSEEN.items() for each in found])
def test_what_manuals_and_real_files_have_is_found(place: str, example: str) -> None:
    for text in (f"Die Datei {example} fehlt", f"„{example}“"):
        assert exact(text, place) == [example], text


def test_drawings_of_subtitles_are_no_text() -> None:
    drawing, end = r"{\an5\p1\pos(316,312)}m 0 0 b 33 -3 48 -7.5 61 -19 l 4 2", r"{\p0}"
    assert exact(f"{drawing}{end}Die Burg") == [drawing, end]
    assert exact(drawing) == [drawing]
    for code in (r"{\p1}", r"{\fsp2}", r"{\pos(1,2)}", r"{\p0}"):
        assert exact(f"{code}mein Bild") == [code]
    assert exact(r"{\fsp2}m 1") == [r"{\fsp2}"]


@pytest.mark.parametrize("text", LANGUAGE)
def test_language_is_no_placeholder(text: str) -> None:
    assert exact(text) == []


def test_underscores_are_a_name_in_json_and_bold_in_markdown() -> None:
    assert exact("Noch __count__ Tage", "json") == ["__count__"]
    assert exact("Noch __count__ Tage", "markdown") == []
    assert exact("Noch __count__ Tage") == []
    assert exact("Das Datum (TT.MM.JJJJ), 5 mm/min und dd", "json") == []
    assert exact("Das Datum (DD.MM.YYYY)", "po") == []


def test_signs_beside_a_placeholder_do_not_hide_that_it_was_changed() -> None:
    assert exact("Noch ___count__ Tage", "json") == []
    assert exact("Titel\n-----\n___") == ["-----"]


def test_flags_of_gettext_add_kinds_and_take_kinds_out() -> None:
    assert exact("~a und %s", "lisp-format") == ["~a", "%s"]
    assert exact("~a und %s", "c-format") == ["%s"]
    assert exact("50 %d und {0}", "no-c-format") == ["{0}"]
    assert exact("%title von @user", "po", "unflagged") == ["%title", "@user"]
    assert exact("%sekunden", "po", "c-format") == ["%s"]


@pytest.mark.parametrize("place", ["text", *PLACES])
@given(text=st.text(alphabet="aB1 .:~'\"#-,;()<>!?€_*$%@{}[]\\/&\n", max_size=30))
def test_no_text_is_skipped_that_has_a_placeholder(place: str, text: str) -> None:
    """A digit makes the search look at any text; the digit itself is a number."""
    syntax = PlaceholderSyntax((place,))
    searched = [each for each in find(f"{text}\n\n7", syntax=syntax) if each.end <= len(text)]
    assert find(f"{text}\n\n", syntax=syntax) == searched


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_table_is_complete(kind: PlaceholderKind) -> None:
    assert kind.specification.startswith("https://")
    assert kind.where.split()
    assert kind.examples or kind.name == "directive with a space flag"
    assert f"[{kind.name}]({kind.specification})" in PAGE


def test_patterns_of_ones_own() -> None:
    syntax = PlaceholderSyntax(patterns=("~~*~~", "<<*>>", "#*", "fest"))
    text = "Ein ~~name~~ und <<a-b>>, #tag; fest. ~~ ~~ <<x y>> ##"
    assert [each.text for each in find(text, syntax=syntax)] == ["~~name~~", "<<a-b>>", "#tag", "fest"]
    assert find("a*b", syntax=PlaceholderSyntax(patterns=(".",))) == []


@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        (["*"], "begins with a character of its own"),
        (["a**b"], "begins with a character of its own"),
        (["a b"], "without white space"),
        ([""], "with 1 to 100 characters"),
        (["x" * 101], "with 1 to 100 characters"),
        (["a"] * (MAX_PATTERNS + 1), "at most 20 patterns"),
        ("abc", "a list of patterns"),
    ],
)
def test_patterns_that_cannot_work_are_refused(patterns: list[str], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        checked_patterns(patterns)


def test_patterns_are_text_and_no_regular_expression() -> None:
    syntax = PlaceholderSyntax(patterns=checked_patterns(["(a+)+$", "[x]", "a|b"]))
    assert [each.text for each in find("(a+)+$ [x] a|b aaaa x", syntax=syntax)] == ["(a+)+$", "[x]", "a|b"]
    assert PLAIN.patterns == ()
