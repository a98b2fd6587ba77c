"""The languages that a domain translates between, and their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from knnmt.corpus.languages import is_tag, normalise
from knnmt.engine.language_codes import best_code, same_language
from knnmt.service.domains import Domain, Tags, fits
from knnmt.service.problems import Problem
from knnmt.service.service import Service

_NAMES = """
af Afrikaans|sq Albanian|am Amharic|ar Arabic|hy Armenian|az Azerbaijani|eu Basque|be Belarusian|bn Bengali|bs Bosnian
bg Bulgarian|my Burmese|ca Catalan|zh Chinese|hr Croatian|cs Czech|da Danish|nl Dutch|en English|eo Esperanto
et Estonian|fi Finnish|fr French|gl Galician|ka Georgian|de German|el Greek|gu Gujarati|ha Hausa|he Hebrew|hi Hindi
hu Hungarian|is Icelandic|ig Igbo|id Indonesian|ga Irish|it Italian|ja Japanese|jv Javanese|kn Kannada|kk Kazakh
km Khmer|ko Korean|ku Kurdish|ky Kyrgyz|lo Lao|la Latin|lv Latvian|lt Lithuanian|lb Luxembourgish|mk Macedonian
ms Malay|ml Malayalam|mt Maltese|mi Maori|mr Marathi|mn Mongolian|ne Nepali|nb Norwegian|nn Norwegian Nynorsk
oc Occitan|ps Pashto|fa Persian|pl Polish|pt Portuguese|pa Punjabi|ro Romanian|ru Russian|sr Serbian|si Sinhala
sk Slovak|sl Slovenian|so Somali|es Spanish|su Sundanese|sw Swahili|sv Swedish|tl Tagalog|tg Tajik|ta Tamil|te Telugu
th Thai|tr Turkish|uk Ukrainian|ur Urdu|uz Uzbek|vi Vietnamese|cy Welsh|xh Xhosa|yi Yiddish|yo Yoruba|zu Zulu
"""
_NAME_OF = dict(each.split(" ", 1) for line in _NAMES.split("\n") for each in line.split("|") if each)


@dataclass(frozen=True, slots=True)
class Direction:
    """A source and a target language, by tags of two letters if there are such. None: unknown.

    model_languages: the languages that requests tell the translator; none, if it has only one direction
    """

    source: str | None
    target: str | None
    model_languages: tuple[str | None, str | None] = (None, None)


def direction(service: Service, domain: Domain, source: str | None, target: str | None) -> Direction | None:
    """How a domain translates between the languages that a tool names; None if it does not.

    source: None if the tool does not name it
    """
    for tag in (source, target):
        if tag is not None and not is_tag(tag):
            raise Problem(422, "invalid_request", f"expected a language tag, such as de, found {tag[:40]!r}")
    model = service.translator.engine.languages
    if domain.languages is not None:
        both = domain.languages
        model_languages: Tags = both if model.codes or service.translator.chooses_model else (None, None)
        return Direction(short(both[0]), short(both[1]), model_languages) if fits((source, target), both) else None
    if model.codes:
        model_languages = source or model.source, target or model.target
        has_all = all(tag is None or best_code(tag, model.codes) for tag in (source, target))
        return Direction(_short(model_languages[0]), _short(model_languages[1]), model_languages) if has_all else None
    if not all(tag is None or is_language(tag) for tag in (source, target)):
        return None
    possible = [each for each in service.directions if fits((source, target), each)]
    if len(possible) > 1:  # then the texts decide
        return Direction(None, None)
    if not possible:
        return None
    [own] = possible
    model_languages = own if service.translator.chooses_model else (None, None)
    return Direction(_short(own[0] or source), _short(own[1] or target), model_languages)


def required_direction(service: Service, domain: Domain, source: str | None, target: str | None) -> Direction:
    """How a domain translates between two languages; if it does not, raise a problem that lists its languages."""
    found = direction(service, domain, source, target)
    if found is None:
        wanted = f"{short(source) if source else 'any language'} to {short(target) if target else 'any language'}"
        known = ", ".join(f"{one} to {other}" for one, other in pairs(service, domain)) or (
            "languages that are not named"
        )
        message = f"the domain {domain.name!r} does not translate from {wanted}; it translates {known}"
        raise Problem(422, "unsupported_languages", message)
    return found


def pairs(service: Service, domain: Domain) -> Iterator[tuple[str, str]]:
    """The language pairs of a domain, without duplicates."""
    model = service.translator.engine.languages
    if domain.languages is not None:
        yield short(domain.languages[0]), short(domain.languages[1])
    elif model.codes:
        names = sorted({short(code) for code in model.codes})
        # Models that are told only the target have one source language.
        sources = names if model.source in model.codes else [short(model.source)] if model.source else []
        yield from ((one, other) for one in sources for other in names if one != other)
    else:
        yield from ((short(source), short(target)) for source, target in service.directions if source and target)


def short(tag: str) -> str:
    """The language of a tag, without region and script; with two letters if the language has such a tag."""
    first = normalise(tag).partition("-")[0]
    return first if len(first) == 2 else next((two for two in _NAME_OF if same_language(two, first)), first)


def is_language(tag: str) -> bool:
    """Whether a tag names a language. Not all tags of three letters are known here."""
    return short(tag) in _NAME_OF or len(short(tag)) == 3


def name_of(tag: str) -> str:
    """The English name of a language; its tag if the name is unknown."""
    return _NAME_OF.get(short(tag), tag)


def _short(tag: str | None) -> str | None:
    return None if tag is None else short(tag)
