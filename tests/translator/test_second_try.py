"""A translation that invents or lacks content gets a second try, and a warning if it stays.

Memories are made up so that they force an invention, and searches are scripted: no test waits for a model's mistake.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from knnmt import Datastore, SegmentPair, Translator
from knnmt.config import DecodingConfig
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.requirements import Requirements
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import ContentWarning, InPiecesWarning
from knnmt.protection.layout import layout_of
from knnmt.translator.assembly import Part, assemble
from knnmt.translator.attempts import Attempts
from knnmt.translator.explanation import explain
from knnmt.translator.guarded import Guarded, placeholders_in
from knnmt.translator.guarded_search import GuardedSearch
from knnmt.translator.segments import Job, TextSegment

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
INVENTED = {  # source, the target of a near source in the memory, what is invented
    "placeholder": ("hinzufügen", "Add %(e)s", "%(e)s"),
    "brace": ("entfernen", "Remove {name}", "{name}"),
    "number": ("im Januar öffnen", "Open page 2019", "2019"),
    "address": ("im Netz öffnen", "Open https://knnmt.example/a", "://"),
    "e-mail": ("an Jan schicken", "Send to jan@knnmt.example", "@"),
    "tag": ("wird geladen", "<b>Loading</b>", "<b>"),
}
A_MEMORY: Any = SimpleNamespace(store=SimpleNamespace(lengths=SimpleNamespace(shortest=0.6)))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(device="cpu", settings="raw")


@pytest.fixture(scope="module")
def guard(engine: TransformerEngine) -> GuardedSearch:
    return GuardedSearch(engine)


@pytest.mark.parametrize("name", INVENTED)
def test_what_the_memory_invents_is_not_written(translator: Translator, tmp_path: Path, name: str) -> None:
    words, target, bad = INVENTED[name]
    pairs = [SegmentPair(f"{each} {words}", target, "made") for each in ("Knoten", "Konto", "Fehler", "Seite")]
    store = Datastore.build(tmp_path / "s", pairs, translator.engine)
    settings = {"datastore": store, "interpolation_weight": 0.97, "temperature": 500.0, "fading": False}
    free = translator.translate(f"Liste {words}", **settings)  # type: ignore[call-overload]
    assert bad in free.text
    kept = translator.translate(f"Liste {words}", protect=True, **settings)  # type: ignore[call-overload]
    assert bad not in kept.text
    assert kept.text.strip()
    (explained,) = explain(translator, [f"Liste {words}"], protect=True, **settings)  # type: ignore[arg-type]
    assert "".join(each if isinstance(each, str) else each.text for each in explained.pieces()) == kept.text


class Script:
    """Searches whose results are written here, and how many there were."""

    def __init__(self, engine: TransformerEngine, results: Sequence[str] = ()) -> None:
        self._engine, self._results = engine, results
        self.searches = 0

    def __call__(self, jobs: Sequence[Job], required: Sequence[Requirements] | None) -> list[list[Part]]:
        self.searches += 1
        return [self.parts(*self._results) for _ in jobs]

    def pieces(self, jobs: Sequence[Job], required: Sequence[Requirements] | None) -> list[list[Part]]:
        """As a call, and what is short is found as it is."""
        if required is None:
            return [self.parts(job.segment.text) for job in jobs]
        return self(jobs, required)

    def parts(self, *texts: str) -> list[Part]:
        tokens = self._engine.tokenizer.encode_targets(list(texts)) if texts else []
        return [Part(Hypothesis(tuple(each), -1.0)) for each in tokens]


def job(engine: TransformerEngine, text: str, memory: Any = A_MEMORY) -> Job:
    (source,) = engine.tokenizer.encode_sources([text])
    return Job(
        TextSegment(text, guarded=Guarded(placeholders=placeholders_in(text, (), Guarded().syntax))), source, memory
    )


def translated(guard: GuardedSearch, engine: TransformerEngine, text: str, first: str, script: Script) -> Part:
    (parts,) = guard.guarded([job(engine, text)], [script.parts(first)], script)
    return parts[0]


SOURCE = "Die Datei wurde gestern gelöscht, und niemand hat etwas gemerkt."


@pytest.mark.parametrize(
    "first",
    [
        "The file {name} was deleted yesterday, and nobody noticed.",
        "The file was deleted in 2019, and nobody noticed.",
        "The file was deleted yesterday by a@knnmt.example.",
        "The file was <i>deleted</i> yesterday, and nobody noticed.",
        "The [file] was deleted yesterday, and nobody noticed.",
        "The (file was deleted yesterday, and nobody noticed.",
        "Deleted.",
        ".",
        "The file was deleted yesterday, was deleted yesterday, and nobody noticed.",
        "The file file file file was deleted yesterday, and nobody noticed.",
    ],
)
def test_content_that_looks_wrong_gets_a_second_try(
    guard: GuardedSearch, engine: TransformerEngine, first: str
) -> None:
    good = "The file was deleted yesterday, and nobody noticed."
    script = Script(engine, [first, good])
    found = translated(guard, engine, SOURCE, first, script)
    assert (found.text, found.cautions, script.searches) == (good, (), 1)
    with pytest.warns(ContentWarning, match="Die Datei wurde gestern"):
        stays = translated(guard, engine, SOURCE, first, Script(engine, [good[:3], first]))
    assert [each.kind for each in stays.cautions] == [ContentWarning]


def test_a_placeholder_of_an_unknown_kind_gets_a_second_try(guard: GuardedSearch, engine: TransformerEngine) -> None:
    source, first, good = "~~name~~ wurde gelöscht.", "~name~~ was deleted.", "~~name~~ was deleted."
    found = translated(guard, engine, source, first, Script(engine, [first, good]))
    assert (found.text, found.cautions) == (good, ())
    with pytest.warns(ContentWarning, match="lacks ~~ of the source"):
        assert translated(guard, engine, source, first, Script(engine, [first])).cautions


@pytest.mark.parametrize(
    ("source", "signs"),
    [
        ("~~name~~ wurde gelöscht.", {"~~": 2}),
        ("Das folgende Beispiel zeigt das::", {"::": 1}),
        ("Wählen Sie [[Datei]] für %s.", {"[[": 1, "]]": 1, "%s": 1}),
        ("Drücken Sie [Eingabe].", {"[": 1, "]": 1}),
        ("Die Datei wurde gelöscht: sie ist weg.", {}),
    ],
)
def test_constrained_search_keeps_signs_of_unknown_placeholders(
    engine: TransformerEngine, source: str, signs: dict[str, int]
) -> None:
    """And writes none of them anywhere else: `~~~name~~` has lost one."""
    asked: list[Requirements] = []

    def search(jobs: Sequence[Job], required: Sequence[Requirements] | None) -> list[list[Part]]:
        asked.extend(required or ())
        return [[]]

    assert [*Attempts(engine).constrained({0: job(engine, source)}, search)] == [(0, [])]
    decode = engine.tokenizer.decode
    assert {decode(each.sequences[0]): each.times for each in asked[0].required} == signs
    tokens = {token for each in asked[0].required for sequence in each.sequences for token in sequence}
    assert all(asked[0].only[token] for token in tokens if "~" in decode([token]) or "[" in decode([token]))


class NoTable:
    """A tokenizer that does not say what its tokens are."""

    def __init__(self, engine: TransformerEngine) -> None:
        self._tokenizer = engine.tokenizer

    def __getattr__(self, name: str) -> Any:
        assert name != "piece", "the table of the vocabulary was made"
        return getattr(self._tokenizer, name)


def test_the_table_of_the_vocabulary_is_made_for_constrained_search_only(engine: TransformerEngine) -> None:
    without = copy.copy(engine)
    without.tokenizer = NoTable(engine)
    guard, good = GuardedSearch(without), "The file was deleted yesterday, and nobody noticed."
    assert translated(guard, engine, SOURCE, good, Script(engine)).text == good
    assert guard.writes("{1}")
    with pytest.raises(AssertionError, match="table"):
        translated(guard, engine, SOURCE, ".", Script(engine))


def test_content_that_looks_right_is_searched_once(guard: GuardedSearch, engine: TransformerEngine) -> None:
    script = Script(engine)
    for source, first in [
        (SOURCE, "The file was deleted yesterday, and nobody noticed."),
        ("Zwei Dateien und 20 Ordner", "2 files and 20 folders"),
        ("Nein, nein, nein!", "No, no, no!"),
        ("Einträge", "Items"),
    ]:
        found = translated(guard, engine, source, first, script)
        assert (found.text, found.cautions) == (first, ())
    assert script.searches == 0


def test_a_second_try_keeps_placeholders(guard: GuardedSearch, engine: TransformerEngine) -> None:
    source, first = f"{SOURCE[:-1]}: %s", "The file was deleted yesterday, was deleted yesterday: %s"
    good = "The file was deleted yesterday, and nobody noticed: %s"
    script = Script(engine, [good.replace("%s", "x"), good])
    assert translated(guard, engine, source, first, script).text == good


WELCOME = "Willkommen bei ###SITENAME###, Ihr @@host@@ hat %d%% von {1}."


def with_stand_ins(guard: GuardedSearch, engine: TransformerEngine, template: str, *bound: str) -> tuple[Part, int]:
    """The translation of `WELCOME` if the text with stand-ins becomes a template; how often it was searched again."""
    script, searches = Script(engine), []

    def search(jobs: Sequence[Job], required: Sequence[Requirements] | None) -> list[list[Part]]:
        searches.append(required)
        if required is not None:
            return [script.parts(*bound)]
        asked = "Willkommen bei {2}, Ihr {3} hat {4} von {5}."
        assert [each.source for each in jobs] == engine.tokenizer.encode_sources([asked])
        parts = script.parts(template)
        return [[replace(each, evidence=[object()] * len(each.hypothesis.tokens)) for each in parts]]  # type: ignore[list-item]

    (parts,) = guard.guarded([job(engine, WELCOME)], [script.parts("Welcome to #SITENAME##, @host@@@.")], search)
    return parts[0], len(searches)


def test_a_text_whose_placeholders_change_is_translated_with_stand_ins(
    guard: GuardedSearch, engine: TransformerEngine
) -> None:
    """Trap: constrained search keeps every placeholder, but may leave out what is between them."""
    part, searches = with_stand_ins(guard, engine, "Welcome to {2}, your {3} has {4} of {5}.")
    assert (part.text, searches) == ("Welcome to ###SITENAME###, your @@host@@ has %d%% of {1}.", 1)
    assert part.cautions == ()
    tokens = part.hypothesis.tokens
    assert engine.tokenizer.decode(tokens) == part.text
    assert len(part.evidence) == len(tokens)
    of_words = {
        engine.tokenizer.decode([token]).strip() for token, why in zip(tokens, part.evidence, strict=True) if why
    }
    assert "host" not in of_words
    assert {None} < set(part.evidence)


def is_complete(engine: TransformerEngine, text: str, part: Part, limit: int) -> bool:
    """Whether the translation of a text by one part is said to be complete."""
    asked = job(engine, text)
    config = DecodingConfig(max_tokens=limit)
    return assemble(text, [asked.segment], [[part]], engine.tokenizer, config, layout=layout_of((text,))).complete


def test_a_translation_is_cut_off_if_its_search_was(guard: GuardedSearch, engine: TransformerEngine) -> None:
    """Trap: placeholders are longer than their stand-ins, and pieces together longer than each."""
    template = "Welcome to {2}, your {3} has {4} of {5}."
    (searched,) = engine.tokenizer.encode_targets([template])
    part, _ = with_stand_ins(guard, engine, template)
    assert len(part.hypothesis.tokens) > len(searched) + 1
    assert is_complete(engine, WELCOME, part, len(searched) + 1)
    assert not is_complete(engine, WELCOME, part, len(searched))
    source = "Siehe %s und %s."
    script = Script(engine)
    (parts,) = guard.guarded([job(engine, source)], [script.parts("See.")], script.pieces)
    assert [each.kind for each in parts[0].cautions] == [InPiecesWarning]
    lengths = [len(each) for each in engine.tokenizer.encode_targets(["Siehe", "und"])]
    assert is_complete(engine, source, parts[0], max(lengths) + 1)
    assert not is_complete(engine, source, parts[0], max(lengths))


@pytest.mark.parametrize(
    "template", ["Welcome to {2}, your {3} has {4}.", "Welcome, {2} {2}, {3} {4} {5}.", "Welcome."]
)
def test_stand_ins_that_are_lost_or_repeated_leave_constrained_search(
    guard: GuardedSearch, engine: TransformerEngine, template: str
) -> None:
    good = "Welcome to ###SITENAME###, @@host@@ has %d%% of {1}."
    part, searches = with_stand_ins(guard, engine, template, good)
    assert (part.text, searches) == (good, 2)


@pytest.mark.parametrize(
    ("first", "memory", "constrained_with_memory"),
    [
        ("Look [at (%s.", None, False),
        ("Look [at (%s.", A_MEMORY, False),  # the memory brought a sign
        ("Look at %s %d.", A_MEMORY, False),
        ("Look (at %s.", A_MEMORY, True),
        ("Look.", A_MEMORY, True),
    ],
)
def test_a_text_goes_through_one_sequence_of_searches(
    guard: GuardedSearch, engine: TransformerEngine, first: str, memory: Any, constrained_with_memory: bool
) -> None:
    """Each search is for texts that still have a fault; the first of the best translations stays, with a warning.

    Trap: a search with neighbours that bring what it must not write repeats what comes before it.
    """
    searches: list[tuple[bool, bool]] = []

    def search(jobs: Sequence[Job], required: Sequence[Requirements] | None) -> list[list[Part]]:
        searches.append((required is not None, jobs[0].retrieval is not None))
        return [Script(engine).parts("See %s, see %s.", "Look (at %s.")]

    (parts,) = guard.guarded([job(engine, "Siehe %s.", memory)], [Script(engine).parts(first)], search)
    assert searches == [(False, memory is not None), (True, constrained_with_memory)]
    alone = memory is not None and not constrained_with_memory
    assert (parts[0].text, parts[0].by_model_alone) == ("Look (at %s.", alone)
    assert [each.kind for each in parts[0].cautions] == [ContentWarning]
    assert len({each.text for each in parts}) == len(parts)


def test_a_translation_by_the_model_alone_is_called_so(guard: GuardedSearch, engine: TransformerEngine) -> None:
    good = "The file was deleted yesterday, and nobody noticed."
    for first, alone in (("The {file} was deleted.", True), ("The file was (deleted.", False)):
        part = translated(guard, engine, SOURCE, first, Script(engine, [good]))
        assert (part.text, part.by_model_alone) == (good, alone)


def test_a_translation_that_looks_wrong_is_not_returned_before_its_second_try(
    guard: GuardedSearch, engine: TransformerEngine
) -> None:
    script = Script(engine)
    assert guard.guarded_at_once(job(engine, SOURCE), script.parts("The file {name} was deleted.")) is None
    assert guard.guarded_at_once(job(engine, SOURCE), script.parts("The file was deleted, and nobody noticed."))


def test_segments_much_longer_than_a_sentence_are_searched_once(
    guard: GuardedSearch, engine: TransformerEngine
) -> None:
    """A search for hundreds of numbers took 35 s, and a request can have many such segments."""
    source = "Datei " + " ".join(f"<{number}" for number in range(100))
    script = Script(engine, ["File."])
    asked = job(engine, source)
    assert len(asked.source) > 160
    for first in ("File.", "File <x> 2019 2019 2019 2019"):
        (parts,) = guard.guarded([asked], [script.parts(first)], script.pieces)
        assert "".join(str(each) for each in parts[0].marked or ()) == source
    assert script.searches == 0
