"""A cheap guess at the language of a text, from scripts and small words: good enough to notice swapped sides.

Short strings, names, mixed text and a few segments alone give no guess.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from knnmt.corpus.languages import normalise

_LANGUAGES = {  # the codes of each language, including those of multilingual models, and its small words
    "German": (
        "de deu ger",
        "der die das und ist nicht mit von für auf den dem des ein eine einen einem einer zu sich auch wird werden "
        "sind wurde oder wenn aus bei nach über als durch kann können sie wir ich es im zum zur dass noch nur wie hat",
    ),
    "English": (
        "en eng",
        "the of and to is in that for with are this be on as by not or from it was you your have has an at which will "
        "can been if when their these",
    ),
    "French": (
        "fr fra fre",
        "le la les des et est une un dans pour que qui pas sur avec par au aux du ce cette ces vous nous il elle sont "
        "être ou plus ne se en été leur",
    ),
    "Spanish": (
        "es spa",
        "el la los las de y es una un en que por para con no del se al lo como más su sus este esta son ser o pero ha",
    ),
    "Italian": (
        "it ita",
        "il lo la gli le di e è un una in che per con non del della dei delle nel nella si al sono come più questo "
        "questa anche da ha essere",
    ),
    "Portuguese": (
        "pt por",
        "o os a as de e é um uma em que por para com não do da dos das no na nos nas se ao mais como são ser ou seu "
        "sua este esta",
    ),
    "Dutch": (
        "nl nld dut",
        "de het een en van is in dat op te met voor niet zijn aan er om ook als door worden wordt bij naar uit kan "
        "deze dit u ik hebben heeft of",
    ),
    "Swedish": (
        "sv swe",
        "och att det som en är av för på med den till inte om ett har de från kan eller vid när så ska var här",
    ),
    "Danish": (
        "da dan",
        "og at det som en er af for på med den til ikke om et har de fra kan eller ved når så skal hvad være blev",
    ),
    "Norwegian": (
        "nb nob no nor",
        "og å det som en er av for på med den til ikke om et har de fra kan eller ved når så skal hva være ble",
    ),
    "Finnish": (
        "fi fin",
        "ja on ei se että hän oli ovat tai kun joka mutta myös sekä olla voi ole niin kuin tämä jos",
    ),
    "Polish": (
        "pl pol",
        "i w na nie się z do jest że o to jak za od po dla są przez oraz lub może być tego które jego",
    ),
    "Czech": (
        "cs ces cze",
        "a v se na je že s z do o pro jsou nebo který která jako by při být není pokud také jeho",
    ),
    "Hungarian": ("hu hun", "a az és hogy nem is egy van ez meg de csak vagy mint ha volt lehet el kell azt"),
    "Romanian": ("ro ron rum", "și de în la cu pe nu că este un o din pentru care mai sau sunt prin fi al ale"),
    "Turkish": (
        "tr tur",
        "ve bir bu için ile da de olarak daha olan gibi çok değil var ne ya veya kadar her olduğu",
    ),
}
_SCRIPTS = {  # the codes of the languages that a script identifies, and its letters
    "Latin": ("", "A-Za-z\u00c0-\u024f"),
    "Cyrillic": ("ru rus uk ukr be bel bg bul mk mkd", "\u0400-\u052f"),
    "Greek": ("el ell gre", "\u0370-\u03ff"),
    "Arabic": ("ar arb ara fa pes urd ur", "\u0600-\u06ff"),
    "Hebrew": ("he heb", "\u0590-\u05ff"),
    "Devanagari": ("hi hin mr mar ne npi", "\u0900-\u097f"),
    "Thai": ("th tha", "\u0e00-\u0e7f"),
    "Korean": ("ko kor", "\uac00-\ud7af"),
    "Chinese or Japanese": ("zh zho chi ja jpn", "\u3040-\u30ff\u4e00-\u9fff"),
}
_LOOKS = {code: name for name, (codes, _) in (_LANGUAGES | _SCRIPTS).items() for code in codes.split()}
_LANGUAGES_OF: defaultdict[str, list[str]] = defaultdict(list)
for _name, (_, _words) in _LANGUAGES.items():
    for _word in _words.split():
        _LANGUAGES_OF[_word].append(_name)
_LETTERS = {script: re.compile(f"[{letters}]") for script, (_, letters) in _SCRIPTS.items()}
_WORD = re.compile(r"[^\W\d_]+")
_MIN_WORDS, _MIN_LETTERS = 5, 10  # at least this many for a segment to count, in Latin script and in others
_MAX_CHARACTERS = 2000
_MIN_HITS = 2
_MIN_SEGMENTS = 8
_MIN_SHARE = 0.6  # of the segments that look like any language
_MIN_PART = 0.4  # of all segments that count: short ones often have no small words
SAMPLE = 500


def looks_of(tag: str) -> str | None:
    """The appearance of a language's text: the language by its English name, or the script if only that is visible.

    tag: also a model's code, such as deu_Latn; None for a language without guesses
    """
    return _LOOKS.get(normalise(tag).split("-")[0])


class LanguageGuess:
    """Guesses the language of a text from its segments."""

    def __init__(self) -> None:
        self.seen = 0
        self._looked_at = 0
        self._votes: Counter[str] = Counter()

    def see(self, text: str) -> None:
        """Look at a segment, unless enough were seen."""
        if self.seen >= SAMPLE:
            return
        self.seen += 1
        text = text[:_MAX_CHARACTERS]
        script = max(_LETTERS, key=lambda each: len(_LETTERS[each].findall(text)))
        if script != "Latin":
            if len(_LETTERS[script].findall(text)) >= _MIN_LETTERS:
                self._looked_at += 1
                self._votes[script] += 1
            return
        words = _WORD.findall(text.lower())
        if len(words) >= _MIN_WORDS:
            self._looked_at += 1
            if language := _language_of(words):
                self._votes[language] += 1

    def other_than(self, asked: str) -> str | None:
        """The appearance of most segments, in the terms of `looks_of`, if it is not the language asked for."""
        expected, found = looks_of(asked), self._looks()
        return found if expected is not None and found != expected else None

    def tag(self) -> str | None:
        """The tag of the language that most segments look like; None if that is unclear or only the script is known."""
        codes, _ = _LANGUAGES.get(self._looks() or "", ("", ""))
        return codes.partition(" ")[0] or None

    def _looks(self) -> str | None:
        if self._looked_at < _MIN_SEGMENTS:
            return None
        found, votes = next(iter(self._votes.most_common(1)), ("", 0))
        most = votes >= _MIN_SHARE * self._votes.total() and votes >= _MIN_PART * self._looked_at
        return found if most else None


def guess_of(text: str) -> tuple[str, float] | None:
    """The tag of the language that one text looks like, and the strength of the evidence, above 0 and at most 1.

    One text is little evidence. For a script that several languages use, it is the language with most speakers.
    """
    text = text[:_MAX_CHARACTERS]
    letters = {script: len(found.findall(text)) for script, found in _LETTERS.items()}
    script = max(letters, key=letters.__getitem__)
    if script != "Latin":
        codes, _ = _SCRIPTS[script]
        return (codes.partition(" ")[0], letters[script] / sum(letters.values())) if letters[script] else None
    hits = Counter(language for word in _WORD.findall(text.lower()) for language in _LANGUAGES_OF.get(word, ()))
    ranked = [*hits.most_common(2), ("", 0), ("", 0)]
    if ranked[0][1] == ranked[1][1]:
        return None
    codes, _ = _LANGUAGES[ranked[0][0]]
    return codes.partition(" ")[0], ranked[0][1] / hits.total()


def _language_of(words: list[str]) -> str | None:
    """The one language to which most of the small words belong."""
    hits = Counter(language for word in words for language in _LANGUAGES_OF.get(word, ()))
    ranked = [*hits.most_common(2), ("", 0)]
    return ranked[0][0] if ranked[0][1] >= _MIN_HITS and ranked[0][1] > ranked[1][1] else None
