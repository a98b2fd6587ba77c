"""The form of a text, which its translation takes over: the initial capital, all-capitals, the final mark.

A rule applies only if the target language allows it and nothing speaks against it:

    initial capital   not before a placeholder, a number or an identifier, nor to a name such as iPhone
    initial small     not for names and identifiers; in German, where nouns have capitals, only for small words
    all capitals      from four letters on; placeholders keep their letters
    final mark        as the target language writes it (。 for .), none where it writes none, and not after an
                      abbreviation. "..." and "…" follow the source; the space before them is the translation's own

Scripts without capitals give and take none. White space around a text is not part of its form: it never gets here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

from knnmt.protection.placeholder_syntax import PLAIN, PlaceholderSyntax
from knnmt.protection.placeholders import Kind, find

_KINDS = {
    "…": "…⋯",
    ".": ".。．｡।॥۔።",
    "?": "?？؟\u037e፧",
    "!": "!！",
    ":": ":：",
    ";": ";；؛",
    ",": ",，、،",
}
_KIND_OF = {mark: kind for kind, marks in _KINDS.items() for mark in marks}
_MARKS = "".join(_KIND_OF)
_CHARACTERS = ("zh", "ja", "yue")
_CLOSERS = "\"'”’“»«›‹)]}）」』】"
_CHINESE = {".": "。", "?": "？", "!": "！", ":": "：", ";": "；", ",": "，", "…": "……"}
_HINDI = {".": "।"}
_ARABIC = {"?": "؟", ";": "؛", ",": "،"}
_FRENCH = {mark: f"\u00a0{mark}" for mark in "?!:;"}
# How a language writes final marks; None for those that it does not set at the end.
_WRITTEN: dict[str, Mapping[str, str | None]] = {
    "zh": _CHINESE, "yue": _CHINESE, "ja": _CHINESE | {",": "、"}, "fr": _FRENCH,
    "hi": _HINDI, "bn": _HINDI, "mr": {}, "ne": _HINDI, "sa": _HINDI, "pa": _HINDI, "or": _HINDI, "as": _HINDI,
    "ar": _ARABIC, "fa": _ARABIC, "ckb": _ARABIC, "ug": _ARABIC, "ur": _ARABIC | {".": "۔"},
    "el": {"?": "\u037e", ";": "·"}, "am": {".": "።", "?": "?"}, "hy": dict.fromkeys(".?!:;,"),
    "es": dict.fromkeys("?!"), "th": dict.fromkeys(".:;,"), "lo": dict.fromkeys(".:;,"),
    "km": dict.fromkeys(".:;,"), "my": dict.fromkeys(".:;,"), "bo": dict.fromkeys(".:;,"),
}  # fmt: skip
_CODES = """
zho zh  cmn zh  jpn ja  fra fr  hin hi  ben bn  mar mr  npi ne  san sa  pan pa  ory or  asm as  arb ar  pes fa  urd ur
uig ug  ell el  amh am  hye hy  spa es  tha th  lao lo  khm km  mya my  bod bo  deu de  ltz lb  eng en  tur tr  azj az
""".split()  # noqa: SIM905
_TWO_LETTERS = dict(zip(_CODES[::2], _CODES[1::2], strict=True))
_GREEK = re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]")
_UNMARKED = re.compile(r"[\u0530-\u058f\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]")  # scripts without our full stop
_SENTENCE_WORDS = 3  # fewer words with a full stop may be an abbreviation
_ABBREVIATION_LETTERS = 5  # longer words with a full stop are not abbreviated
_CAPITALS = 4  # fewer letters are an abbreviation
ABBREVIATIONS = frozenset(
    """
    abb abs approx bspw bzgl bzw ca corp co dept dr etc evtl excl exkl fig ggf inc incl inkl jr ltd max min mr mrs nos
    nr pp prof sec sek sr st std str tel usw vgl vol vs zzgl jan feb apr jun jul aug sep sept oct okt nov dec dez tue
    tues wed thu fri
    """.split()  # noqa: SIM905
)
_ENGLISH_NAMES = frozenset(
    """
    january february march april may june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays sundays easter christmas
    english german french italian spanish portuguese dutch danish swedish norwegian finnish icelandic polish czech
    slovak slovenian croatian serbian bosnian hungarian romanian bulgarian russian ukrainian belarusian greek turkish
    arabic hebrew persian hindi bengali tamil thai vietnamese indonesian malay korean japanese chinese mongolian
    latin catalan basque galician irish welsh scottish british american canadian mexican brazilian australian
    austrian swiss belgian european african asian indian israeli egyptian iranian iraqi estonian latvian lithuanian
    albanian armenian georgian swahili gregorian roman christian jewish islamic muslim buddhist internet bluetooth
    unicode cyrillic boolean gaussian cartesian euclidean fibonacci bayesian mr mrs ms dr god
    """.split()  # noqa: SIM905
)
_GERMAN_SMALL_WORDS = frozenset(
    """
    aber alle allen aller alles als am an auch auf aus bei beim bereits bis bitte da dann das dass dem den der des
    die dies diese diesem diesen dieser dieses durch ein eine einem einen einer eines es für hat haben hier ihr ihre
    im in ins ist jede jeden jeder jedes kann kein keine keinen keiner können mit muss müssen nach nicht nichts noch
    nur ob oder ohne seit sie sind so soll sollte über um und unter vom von vor war warum was weder weitere wenn wer
    werden wie wird wo wurde wurden zu zum zur zurück zwischen
    """.split()  # noqa: SIM905
)
_WORD = re.compile(r"[^\s,;:!?()\[\]{}\"'’“”„«»‹›<>|/]+")


def in_the_form_of(
    source: str,
    translation: str,
    language: str | None,
    also: Collection[str] = (),
    syntax: PlaceholderSyntax = PLAIN,
    *,
    begins: bool = True,
) -> str:
    """A translation with the capitals and the final mark of its source, as its language writes them.

    Args:
        source: the text, without white space around it.
        translation: its translation.
        language: the language of the translation; None if it is unknown.
        also: other texts that stay unchanged, such as stand-ins for codes.
        syntax: what counts as a placeholder.
        begins: whether the source begins its text. If it does not, a capital says nothing, for German nouns have it.
    """
    capitals = with_capitals(source, translation, language, also, syntax, begins=begins)
    return with_final_mark(source, capitals, language, syntax)


def with_capitals(
    source: str,
    translation: str,
    language: str | None,
    also: Collection[str] = (),
    syntax: PlaceholderSyntax = PLAIN,
    *,
    begins: bool = True,
) -> str:
    """A translation with the initial capital of its source, or all in capitals if the source is."""
    if _in_capitals(source, also, syntax) and source != translation:
        return _capitalised(translation, language, also, syntax)
    there = _first_letter(source, also, syntax)
    here = _first_letter(translation, also, syntax)
    if there is None or here is None:
        return translation
    model, word = _word_at(source, there), _word_at(translation, here)
    letter = translation[here]
    if _is_name(model) and not source[there].isupper():
        return translation
    if source[there].isupper() and letter.islower() and begins:
        copied = len(word) > 2 and word in _WORD.findall(source)
        abbreviation = model.partition("-")[0]
        of_abbreviation = abbreviation.isupper() and word.casefold().startswith(abbreviation.casefold())
        if not copied and not of_abbreviation and not _is_name(word):
            return translation[:here] + _titled(letter, language) + translation[here + 1 :]
    if source[there].islower() and letter.isupper() and _may_be_small(word, source, language):
        return translation[:here] + _lowered(letter, language) + translation[here + 1 :]
    return translation


def with_final_mark(source: str, translation: str, language: str | None, syntax: PlaceholderSyntax = PLAIN) -> str:
    """A translation that ends with the mark of its source, or with none."""
    here, there, short = _Ending.of(translation, syntax), _Ending.of(source, syntax), _base(language)
    if here.kind == there.kind:
        spelled = here.kind == "…" and not set(here.mark + there.mark) - set(".…") and here.mark != there.mark
        return (
            translation.rstrip()[: -len(here.mark)] + there.mark
            if spelled and short not in _CHARACTERS
            else translation
        )
    # American English sets the full stop before a closing quotation mark.
    if "::" in here.mark:  # a sign, as in reStructuredText
        return translation
    if "" != there.kind == here.inner_kind or "" != here.kind == there.inner_kind or not here.text:
        return translation
    if there.kind == "":
        ends = here.kind == "." and (there.is_unmarked or _is_abbreviation(here.text))
        return translation if ends else here.text
    if there.kind == "." and not _is_sentence(source):
        return translation
    plain = there.mark if there.mark.isascii() or there.kind == "…" else there.kind
    mark = _WRITTEN.get(short, {}).get(there.kind, plain)
    if mark is None:
        return translation
    return here.text + (" " if there.is_spaced and there.kind == "…" and short == "de" else "") + mark


# Capitals -------------------------------------------------------------------------------------------------------------


def _first_letter(text: str, also: Collection[str], syntax: PlaceholderSyntax) -> int | None:
    """The position of the letter that begins a text; None if a number, a placeholder or an identifier does."""
    start = next((number for number, letter in enumerate(text) if letter.isalnum()), None)
    if start is None or not text[start].isalpha():
        return None
    if any(each.kind is Kind.EXACT and each.start <= start for each in find(text, also, syntax)):
        return None
    return None if text[:start][-1:] in tuple("-@#$\\/._&<`~^|=") else start


def _word_at(text: str, start: int) -> str:
    found = _WORD.match(text, start)
    return found.group() if found else text[start]


def _is_name(word: str) -> bool:
    """Whether a word is written like an identifier or a brand: with digits, _ or . inside, or as iPhone is."""
    if any(letter.isdigit() or letter in "_@=" for letter in word) or "." in word.rstrip(".…"):
        return True
    return any(before.islower() and after.isupper() for before, after in pairwise(word))


def _may_be_small(word: str, source: str, language: str | None) -> bool:
    short = _base(language)
    if not short or _is_name(word) or word[1:2].isupper() or len(word) == 1 or word in _WORD.findall(source):
        return False
    word = word.rstrip(".…").casefold()
    if short in ("de", "nds", "lb", "gsw"):
        return word in _GERMAN_SMALL_WORDS
    return short != "en" or word.partition("-")[0] not in _ENGLISH_NAMES


def _in_capitals(source: str, also: Collection[str], syntax: PlaceholderSyntax) -> bool:
    """Whether all letters of a text are capitals, except in placeholders."""
    outside = "".join(_parts(source, also, syntax)[::2])
    if not outside.isupper():
        return False
    letters = [letter for letter in outside if letter.isalpha()]
    words = source.split()
    return (
        len(letters) >= _CAPITALS
        and all(letter.isupper() for letter in letters)
        and not (len(words) == 1 and _is_name(words[0]))
    )


def _capitalised(text: str, language: str | None, also: Collection[str], syntax: PlaceholderSyntax) -> str:
    parts = _parts(text, also, syntax)
    parts[::2] = [
        part.replace("i", "İ").upper() if _base(language) in ("tr", "az") else part.upper() for part in parts[::2]
    ]
    return "".join(parts)


def _parts(text: str, also: Collection[str], syntax: PlaceholderSyntax) -> list[str]:
    """The text between placeholders, and, in between, the placeholders."""
    parts, end = [], 0
    for each in find(text, also, syntax):
        if each.kind is Kind.EXACT:
            parts += [text[end : each.start], each.text]
            end = each.end
    return [*parts, text[end:]]


def _titled(letter: str, language: str | None) -> str:
    return "İ" if letter == "i" and _base(language) in ("tr", "az") else letter.title()


def _lowered(letter: str, language: str | None) -> str:
    return "ı" if letter == "I" and _base(language) in ("tr", "az") else letter.lower()


# Final marks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ending:
    """The end of a text.

    text: what comes before its final mark
    mark, kind: the mark, and its kind; empty for none, as after a placeholder such as &nbsp;
    inner_kind: the kind of a mark before closing quotes and brackets; empty for none
    is_spaced: whether white space precedes the mark
    is_unmarked: whether its script does without a full stop
    """

    text: str
    mark: str
    kind: str
    inner_kind: str
    is_spaced: bool
    is_unmarked: bool

    @classmethod
    def of(cls, text: str, syntax: PlaceholderSyntax) -> _Ending:
        """The end of this text."""
        text = text.rstrip()
        bare = text.rstrip(_MARKS)
        if len(bare) < len(text):
            exact = [each.end for each in find(text, syntax=syntax) if each.kind is Kind.EXACT and each.end > len(bare)]
            bare = text[: max([len(bare), *exact])]
        mark, before = text[len(bare) :], bare.rstrip()
        body = before.rstrip(_CLOSERS)
        inner = body[len(body.rstrip(_MARKS)) :] if body != before else ""
        unmarked = _UNMARKED.match(body[-1:]) is not None
        return cls(before, mark, _kind(mark, body), _kind(inner, body), before != bare, unmarked)


def _kind(mark: str, before: str) -> str:
    """The kind of a run of marks after a text; empty for none."""
    if "…" in mark or "⋯" in mark or "..." in mark or "。。" in mark:
        return "…"
    if mark == ";" and _GREEK.match(before[-1:]):
        return "?"
    return _KIND_OF[mark[-1]] if mark else ""


def _is_sentence(source: str) -> bool:
    """Whether the full stop at the end of a source ends a sentence, and not an abbreviation."""
    words = source.split()
    if words[-1].endswith(("。", "．", "｡")):
        return True
    long = len(words) >= _SENTENCE_WORDS or len(words[-1]) > _ABBREVIATION_LETTERS + 1
    return long and not _is_abbreviation(source.rstrip().rstrip("."))


def _is_abbreviation(text: str) -> bool:
    """Whether the last word of a text, which is cut off before a full stop, has one because it is an abbreviation."""
    last = re.split(r"[\s(\[{\u00a0]", text)[-1]
    return "." in last or len(last) < 2 or last.casefold() in ABBREVIATIONS


def _base(language: str | None) -> str:
    """The language of a tag or a model's code (pt-BR, deu_Latn, __de__), by its two letters if they are needed here."""
    name = next(iter(re.findall(r"[a-z]{2,3}", (language or "").lower())), "")
    return _TWO_LETTERS.get(name, name)
