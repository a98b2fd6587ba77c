"""The plural categories of languages, by their CLDR names: the forms that resources need."""

from __future__ import annotations

from knnmt.corpus.languages import normalise
from knnmt.engine.language_codes import same_language

CATEGORIES = ("zero", "one", "two", "few", "many", "other")
_LANGUAGES = {  # from the Unicode CLDR
    "other": "id ja jv km ko lo ms my su th vi wo yo yue zh",
    "one other": "af am as az bg bn da de el en eo et eu fa fi fil fo fy gl gu ha hi hu hy is ka kk kn ku ky lb mg mk "
    "ml mn mr nb ne nl nn no or pa ps si so sq st sv sw ta te ti tk tl tn tr ts ur uz xh yi zu",
    "one many other": "ca es fr ht it pt",
    "one two other": "he iw se",
    "one few other": "bs hr ro sr",
    "zero one other": "lv",
    "one few many other": "be cs lt pl ru sk uk",
    "one two few other": "dsb gd hsb sl",
    "one two few many other": "br ga mt",
    "zero one two few many other": "ar cy",
}


def plural_categories(tag: str) -> tuple[str, ...] | None:
    """The categories of a language, in order; None for an unknown language."""
    own = normalise(tag).partition("-")[0]
    for categories, languages in _LANGUAGES.items():
        if any(own == language or same_language(tag, language) for language in languages.split()):
            return tuple(categories.split())
    return None
