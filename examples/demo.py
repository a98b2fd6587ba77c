"""The main job, small: a few German sentences, written for this project, translated with the shipped model."""

import time

from knnmt import Translator

SENTENCES = [
    "Guten Morgen! Haben Sie gut geschlafen?",
    "Das Parlament hat den Vorschlag mit großer Mehrheit angenommen.",
    "Wir müssen jetzt entscheiden, ob wir weitermachen oder umkehren.",
    "Der Zug nach Leipzig fährt heute 20 Minuten später ab.",
    "Wer zu spät kommt, bekommt keinen Platz mehr.",
    "Ich habe das Buch gelesen, das du mir empfohlen hast.",
]


def main() -> None:
    """Translate and print source, translation and score."""
    translator = Translator()
    started = time.perf_counter()
    translations = translator.translate(SENTENCES, split_sentences=True)
    seconds = time.perf_counter() - started
    for translation in translations:
        print(f"{translation.source}\n  {translation.text}   ({translation.score:.2f})")
    tokens = sum(len(translation.tokens) for translation in translations)
    print(f"\n{len(SENTENCES)} lines, {tokens} tokens, {seconds:.2f} s.")
    print('Next: echo "Ihr Satz." | .venv/bin/knnmt translate       and       .venv/bin/knnmt translate --help')


if __name__ == "__main__":
    main()
