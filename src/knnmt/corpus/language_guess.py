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
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa]")
_WORD = re.compile(r"[^\W\d_]+")
# What tells the two languages of the shipped models apart: groups of three letters, with _ for the ends of a word, and
# common words without such groups.
_GROUPS_AND_WORDS = {
    "de": (
        "_ak _au _di _ei _er _fü _ge _ih _ka _ko _kö _ni _od _si _um _un _ve _vo _wu _wä _ze _zu _üb abe ach "
        "ahr akt auf aus bei ben ber bes che chl chn cht chu das dem den der die dun ebe ech ege ehe ehr ei_ "
        "eic eil ein eis eit ekt en_ enn erb erd erh erk eru erw etz euc fen für geb geg gen gew gt_ gun hle "
        "hne hr_ hre ht_ hte ich ie_ ier ig_ ige ihn ihr ird isc kan kei kom kon kti kön lag lei len lle llt "
        "lte lun mit nac nde nen nn_ nun och ode rbe rei rsc rte run rwe sch sei sic sie tei tel ten tet tig "
        "tik tun uch uf_ um_ und ung von vor wei wen wer wie wir wur wäh zei zen zu_ zur ähl änd önn übe ür_",
        "ja nein danke bitte hallo guten tag datei hilfe öffnen fertig weiter zurück",
    ),
    "en": (
        "_ac _ad _ap _as _by _ca _ch _co _cr _ex _fo _if _it _no _of _on _or _ot _sh _su _th _to _up _us _wh "
        "_yo acc act ain al_ anc any app are ase ave ay_ be_ by_ cal can cat cco ce_ ces cif com con cor cou "
        "cre ct_ cti ded dis ds_ eas eat eci eco ect ed_ ee_ eed enc equ eve ey_ fic fie fro ght god hat hav "
        "he_ hey his ho_ hou how ic_ ica if_ igh ill inc ing is_ ith ity ive led ll_ llo lly low ly_ may nce "
        "ned not nt_ ny_ od_ of_ or_ ose ot_ oth ou_ oul oun our ous out ove ow_ pec ple rea red rep rom rs_ "
        "ry_ sed sho sur ted th_ tha the thi tho tic tin to_ ts_ ty_ up_ use ve_ we_ whe whi who wil wit you",
        "yes no thanks please hello good day file help open done next back save new edit",
    ),
}
_EVIDENCE = {tag: [frozenset(each.split()) for each in both] for tag, both in _GROUPS_AND_WORDS.items()}
_LETTERS_OF_BOTH = frozenset("abcdefghijklmnopqrstuvwxyzäöüßé")
_MIN_EVIDENCE, _MIN_AGREEMENT = 2, 0.65  # of a text that is German or English
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
        return (_tag_of_script(script, text), letters[script] / sum(letters.values())) if letters[script] else None
    hits = Counter(language for word in _WORD.findall(text.lower()) for language in _LANGUAGES_OF.get(word, ()))
    ranked = [*hits.most_common(2), ("", 0), ("", 0)]
    if ranked[0][1] == ranked[1][1]:
        return None
    codes, _ = _LANGUAGES[ranked[0][0]]
    return codes.partition(" ")[0], ranked[0][1] / hits.total()


def recognise(text: str) -> str | None:
    """The tag of the language that a text looks like; None if that is not clear.

    German and English are recognised in a few words; other languages by their small words or their script.
    """
    text = text[:_MAX_CHARACTERS].lower()
    script = max(_LETTERS, key=lambda each: len(_LETTERS[each].findall(text)))
    if script != "Latin":
        return _tag_of_script(script, text)
    hits = Counter(language for word in set(_WORD.findall(text)) for language in _LANGUAGES_OF.get(word, ()))
    own = max(hits.pop("German", 0), hits.pop("English", 0))
    for language, others in hits.most_common(1):
        if others >= own + _MIN_HITS:
            return _LANGUAGES[language][0].partition(" ")[0]
    return _german_or_english(text)


def _tag_of_script(script: str, text: str) -> str:
    """The tag of the language with most speakers that uses a script; Japanese if a text has kana."""
    codes = _SCRIPTS[script][0].split()
    return "ja" if "ja" in codes and _KANA.search(text) else codes[0]


def _german_or_english(text: str) -> str | None:
    found = Counter[str]()
    for word in _WORD.findall(text):
        marked = f"_{word}_"
        groups = {marked[place : place + 3] for place in range(len(word))}
        for tag, (known, words) in _EVIDENCE.items():
            found[tag] += len(groups & known) + 2 * (word in words)
        found["de"] += 2 * any(letter in "äöüß" for letter in word)
        found["other"] += 2 * any(letter not in _LETTERS_OF_BOTH for letter in word)
    tag, most = next(iter(found.most_common(1)), ("other", 0))
    return tag if tag != "other" and most >= max(_MIN_EVIDENCE, _MIN_AGREEMENT * found.total()) else None


def _language_of(words: list[str]) -> str | None:
    """The one language to which most of the small words belong."""
    hits = Counter(language for word in words for language in _LANGUAGES_OF.get(word, ()))
    ranked = [*hits.most_common(2), ("", 0)]
    return ranked[0][0] if ranked[0][1] >= _MIN_HITS and ranked[0][1] > ranked[1][1] else None
