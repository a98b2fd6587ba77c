"""Explanations made by hand, for tests of how they are shown."""

from __future__ import annotations

from knnmt import Evidence, Explanation, Match, SegmentPair, Token, Translation
from knnmt.translator.evidence import EvidenceNeighbour
from knnmt.translator.explanation import words_of

END = "</s>"
FORCED = Evidence(1.0, 1.0, 0.0, 0.0, False, (), forced=True)


def near(token: str, pair: SegmentPair, weight: float, distance: float = 2.5) -> EvidenceNeighbour:
    """A neighbour whose token stands where its letters first stand in the target."""
    letters = token.strip("▁") if token != END else ""
    start = pair.target.index(letters) if letters else len(pair.target)
    return EvidenceNeighbour(token, distance, weight, pair, 0, (start, start + len(letters)), 7)


def evidence(weight: float, model: float, token: str, *neighbours: EvidenceNeighbour, cached: bool = False) -> Evidence:
    """What a token was made of, by equation 3, with λ = weight."""
    memory = sum(each.weight for each in neighbours if each.token == token)
    return Evidence(weight * memory + (1 - weight) * model, model, memory, weight, cached, neighbours)


def translation_of(
    *chosen: tuple[str, Evidence | None], source: str = "Quelle", match: Match | None = None
) -> Translation:
    """A translation of these pieces, "▁" for the space before a word; sentences end in END and are a space apart."""
    text, tokens = "", []
    for number, (piece, why) in enumerate(chosen):
        letters = "" if piece == END else piece.replace("▁", " ")
        if letters.startswith(" ") and not text:
            letters = letters[1:]
        start = len(text) + len(letters) - len(letters.lstrip())
        text += letters
        tokens.append(Token(number, piece, why, (start, len(text)) if letters.strip() else (start, start)))
    return Translation(source, text, tuple(tokens), -0.5, match=match)


def explanation_of(translation: Translation, alone: str = "Something else.") -> Explanation:
    return Explanation(translation, tuple(words_of(translation)), alone, "de", "en")


def made_explanation() -> Explanation:
    """«Skid cleared.» from a made-up memory: two tokens a word, a cached step, a step without a search."""
    skid = SegmentPair("Die Palette wurde freigegeben.", "Skid cleared.", "lager.tmx#tu1")
    tag = SegmentPair("Das Etikett wurde freigegeben.", "Tag cleared.", "lager.tmx#tu2")
    made = translation_of(
        ("▁Sk", evidence(0.9, 0.01, "▁Sk", near("▁Sk", skid, 0.8), near("▁T", tag, 0.2, 4.0))),
        ("id", evidence(0.8, 0.5, "id", near("id", skid, 1.0))),
        ("▁clear", evidence(0.9, 0.1, "▁clear", near("▁clear", skid, 0.6), near("▁clear", tag, 0.4), cached=True)),
        ("ed", evidence(0.0, 0.97, "ed")),
        (".", evidence(0.3, 0.9, ".", near(".", tag, 1.0))),
        (END, evidence(0.5, 0.9, END, near(END, skid, 1.0))),
        source="Die Palette ist freigegeben.",
        match=Match(skid.source, skid.target, skid.origin, 80, False),
    )
    return explanation_of(made, "The pallet is cleared.")
