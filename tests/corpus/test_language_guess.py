"""Guesses at languages: right for sentences, silent for names, short strings and mixed text."""

from __future__ import annotations

import pytest

from knnmt.corpus.language_guess import SAMPLE, LanguageGuess, looks_of
from support.german import german_memory

SENTENCES = {
    "de": [
        "Die Pumpe wird mit dem Schalter an der Rückseite eingeschaltet.",
        "Wenn das Licht nicht leuchtet, ist die Batterie leer.",
    ],
    "en": [
        "The pump is switched on at the back of the housing.",
        "If the light is not on, the battery has to be changed.",
    ],
    "fr": [
        "La pompe est mise en marche avec le bouton.",
        "Si la lampe ne s'allume pas, la pile est vide dans le boîtier.",
    ],
    "es": [
        "La bomba se enciende con el botón de la parte trasera.",
        "Si la luz no se enciende, es que la pila está vacía.",
    ],
    "it": [
        "La pompa si accende con il pulsante sul retro della scatola.",
        "Se la luce non si accende, la pila è scarica.",
    ],
    "pt": ["A bomba é ligada com o botão na parte de trás.", "Se a luz não se acender, a pilha está vazia e não dá."],
    "nl": [
        "De pomp wordt met de knop aan de achterkant ingeschakeld.",
        "Als het licht niet brandt, is de batterij leeg.",
    ],
    "sv": ["Pumpen slås på med knappen som är på baksidan.", "Om lampan inte lyser är det för att batteriet är tomt."],
    "da": ["Pumpen tændes med knappen på bagsiden af kassen.", "Det er af hensyn til børn, hvad der ikke må ske."],
    "nb": ["Det er ikke lett å slå på pumpen av seg selv.", "Det er av hensyn til barna, hva som ikke må skje."],
    "fi": ["Pumppu on päällä, kun valo palaa ja ovi on kiinni.", "Se ei ole vika, mutta myös paristo voi olla tyhjä."],
    "pl": [
        "Pompa nie jest włączona, jeśli światło się nie pali.",
        "To jest przycisk, który jest na tylnej ścianie i z boku.",
    ],
    "cs": [
        "Čerpadlo se zapíná na zadní straně a není to těžké.",
        "Pokud se světlo nerozsvítí, je baterie nebo pojistka vadná.",
    ],
    "hu": ["A szivattyú nem megy, ha az elem lemerült.", "Ez egy gomb, és a hátoldalon van az ajtó mellett."],
    "ro": [
        "Pompa se pornește cu un buton din spate și nu este greu.",
        "Dacă nu se aprinde, bateria este goală și nu mai merge.",
    ],
    "tr": [
        "Pompa arkadaki düğme ile açılır ve bu çok kolay bir iş.",
        "Işık için bir pil var, bu daha uzun ve kolay değil.",
    ],
    "ru": ["Насос включается кнопкой на задней стенке корпуса."],
    "el": ["Η αντλία ανάβει με το κουμπί στο πίσω μέρος."],
    "ar": ["يتم تشغيل المضخة بالزر الموجود في الخلف"],
    "he": ["המשאבה מופעלת בלחצן שבגב המכשיר"],
    "hi": ["पंप पीछे के बटन से चालू होता है"],
    "th": ["ปั๊มเปิดด้วยปุ่มด้านหลังของเครื่อง"],
    "ko": ["펌프는 뒷면에 있는 단추로 켭니다 그리고 끕니다"],
    "ja": ["ポンプは背面のボタンで入れます。"],
}
SHORT = [
    "Datei",
    "Speichern unter …",
    "OK",
    "ThinkPad X1 Carbon",
    "Microsoft Office 365",
    "-v, --verbose",
    "%s: %d",
    "",
] * 30


def guess(texts: list[str]) -> LanguageGuess:
    found = LanguageGuess()
    for text in texts:
        found.see(text)
    return found


@pytest.mark.parametrize("language", SENTENCES)
def test_a_language_is_known_by_its_sentences(language: str) -> None:
    found = guess(SENTENCES[language] * 8)
    assert found.other_than(language) is None
    other = "en" if language != "en" else "de"
    assert found.other_than(other) == looks_of(language)


@pytest.mark.parametrize(
    ("tag", "looks"), [("de-AT", "German"), ("deu_Latn", "German"), ("zho_Hans", "Chinese or Japanese"), ("xx", None)]
)
def test_tags_and_codes_of_models(tag: str, looks: str | None) -> None:
    assert looks_of(tag) == looks


def test_nothing_is_guessed_about_a_language_that_is_not_known() -> None:
    assert guess(SENTENCES["en"] * 8).other_than("ca") is None


def test_short_strings_names_and_codes_give_no_guess() -> None:
    for language in SENTENCES:
        assert guess(SHORT).other_than(language) is None


def test_a_few_sentences_and_mixed_text_give_no_guess() -> None:
    assert guess(SENTENCES["en"] * 3).other_than("de") is None
    assert guess([*SHORT, *SENTENCES["en"] * 3]).other_than("de") is None
    assert guess((SENTENCES["en"] + SENTENCES["de"]) * 20).other_than("de") is None
    names = ["Windows Server 2022 Datacenter Edition for Enterprise Agreement"] * 20  # one small word is not enough
    assert guess(names).other_than("de") is None
    quoted = ["Klicken Sie auf „Save as“, dann auf „OK“ und wählen Sie die Datei aus."] * 20
    assert guess(quoted).other_than("de") is None


def test_strings_without_small_words_do_not_hide_the_others() -> None:
    strings = ["Supplier number already exists twice"] * 10
    assert guess([*strings, *SENTENCES["en"][:1] * 9]).other_than("de") == "English"
    assert guess([*strings * 2, *SENTENCES["en"][:1] * 9]).other_than("de") is None


def test_only_the_first_segments_are_looked_at() -> None:
    sentences = [pair.source for pair in german_memory(300)] * 2
    found = guess([*sentences[:SAMPLE], *SENTENCES["en"] * 4000])
    assert found.seen == SAMPLE
    assert found.other_than("de") is None
    assert found.other_than("en") == "German"
