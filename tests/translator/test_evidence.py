"""Evidence: what a token's probability was made of is what the model and the store say when asked again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt import Evidence, Request, Translation, Translator
from knnmt.datastore.store import Datastore
from knnmt.engine.forced import force
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import CutTranslationWarning
from support.datastore_pairs import some_pairs

TEXTS = ["Satz 3 ja ja", "Satz 12", "anders", "Satz 100 ja", "ja"]


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    made = Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(25), tiny)
    made.add(some_pairs(10, "later.tsv", start=95), tiny)
    made.remove(lambda pair: pair.source.startswith("Satz 4"))
    return made


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path, store: Datastore) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", datastore=store, settings="raw")


pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")


def ranked(translations: list[Translation]) -> Iterator[Translation]:
    for each in translations:
        yield from (each, *each.alternatives)


def log_sum(translation: Translation) -> float:
    return math.fsum(math.log(token.evidence.probability) for token in translation.tokens if token.evidence)


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("settings", [{}, {"interpolation_weight": 0.7}, {"cache": 5.0}], ids=str)
def test_probabilities_multiply_to_the_score(translator: Translator, beam: int, settings: dict[str, float]) -> None:
    n_best = min(beam, 3)
    for penalty in (1.0, 0.5):
        found = translator.translate(
            TEXTS,
            beam=beam,
            n_best=n_best,
            evidence=True,
            length_penalty=penalty,
            interpolation_weight=settings.get("interpolation_weight"),
            cache=settings.get("cache"),
        )
        assert len(list(ranked(found))) == n_best * len(TEXTS)
        for each in ranked(found):
            assert all(token.evidence for token in each.tokens)
            assert log_sum(each) / len(each.tokens) ** penalty == pytest.approx(each.score, abs=1e-4)


def test_what_evidence_says_is_so(translator: Translator, tiny: TransformerEngine, store: Datastore) -> None:
    searched = borrowed = 0
    held = {*some_pairs(25), *some_pairs(10, "later.tsv", start=95)}
    found = translator.translate(TEXTS, n_best=3, evidence=True, interpolation_weight=0.6, k=4, temperature=20.0)
    for each in ranked(found):
        source = tiny.tokenizer.encode_sources([each.source])
        forced = force(tiny, source, [[token.id for token in each.tokens]])
        model = tiny.log_probabilities(forced.representations).exp()
        for step, token in enumerate(each.tokens):
            why = token.evidence
            assert why is not None
            mixed = why.interpolation_weight * why.memory_probability
            mixed += (1 - why.interpolation_weight) * why.model_probability
            assert why.probability == pytest.approx(mixed, abs=1e-9)
            assert not why.cached
            if step == 38:  # the end is forced
                assert (why.probability, why.neighbours) == (1.0, ())
                continue
            assert why.interpolation_weight == pytest.approx(0.6)
            assert why.model_probability == pytest.approx(float(model[step, token.id]), abs=1e-5)
            assert len(why.neighbours) == 4
            assert sum(near.weight for near in why.neighbours) == pytest.approx(1, abs=1e-5)
            entries = [store.entry(near.entry) for near in why.neighbours]
            state = forced.representations[step].double().numpy()
            true = [float(np.linalg.norm(entry.key.astype(np.float64) - state)) for entry in entries]
            assert [near.distance for near in why.neighbours] == pytest.approx(true, abs=1e-3)
            assert true == sorted(true)
            shares = np.exp(-np.square(true) / 20.0)
            assert [near.weight for near in why.neighbours] == pytest.approx(shares / shares.sum(), abs=1e-3)
            own = [near.weight for near, entry in zip(why.neighbours, entries, strict=True) if entry.value == token.id]
            assert why.memory_probability == pytest.approx(sum(own), abs=1e-6)
            for near, entry in zip(why.neighbours, entries, strict=True):
                assert not entry.removed
                assert (near.pair, near.position) == (entry.pair, entry.position)
                assert near.token == tiny.tokenizer.piece(int(entry.target_tokens[near.position]))
                assert near.pair in held
            searched += 1
            borrowed += bool(own)
    assert searched > 100
    assert borrowed > 50


def test_evidence_changes_no_result(translator: Translator) -> None:
    for beam in (1, 5):
        with_evidence = translator.translate(TEXTS, beam=beam, evidence=True, cache=5.0)
        without = translator.translate(TEXTS, beam=beam, cache=5.0)
        assert all(token.evidence is None for each in without for token in each.tokens)
        assert [each.text for each in with_evidence] == [each.text for each in without]
        scores = [each.score for each in without]  # by compiled code, which sums in another order
        assert [each.score for each in with_evidence] == pytest.approx(scores, abs=1e-5)


def test_what_came_from_the_cache_is_marked_and_shows_what_was_found_before(translator: Translator) -> None:
    cached = 0
    for each in translator.translate(TEXTS, beam=1, evidence=True, cache=5.0):
        earlier: list[tuple[int, ...]] = []
        for token in each.tokens:
            assert token.evidence is not None
            entries = tuple(near.entry for near in token.evidence.neighbours)
            if token.evidence.cached:
                assert entries in earlier
                cached += 1
            earlier.append(entries)
        assert each.tokens[0].evidence is not None
        assert not each.tokens[0].evidence.cached
    assert cached > 5


def test_a_forced_last_token_is_certain(translator: Translator) -> None:
    with pytest.warns(CutTranslationWarning):
        cut = translator.translate(TEXTS[1], max_tokens=3, evidence=True, interpolation_weight=0.5)
    last = cut.tokens[-1].evidence
    assert last is not None
    assert last == Evidence(1.0, 1.0, 0.0, 0.0, False, (), forced=True)
    assert not any(token.evidence.forced for token in cut.tokens[:-1] if token.evidence)
    assert len(cut.tokens) == 3
    assert log_sum(cut) / 3 == pytest.approx(cut.score, abs=1e-4)


def test_texts_without_a_store_have_no_evidence(translator: Translator, store: Datastore) -> None:
    requests = [Request(TEXTS[0], None), Request(TEXTS[1], store), Request(""), Request(TEXTS[3], None)]
    found = translator.translate(requests, evidence=True)
    assert [any(token.evidence for token in each.tokens) for each in found] == [False, True, False, False]
    assert all(token.evidence for token in found[1].tokens)
    alone = translator.translate(TEXTS[0], datastore=None, evidence=True)
    assert not any(token.evidence for token in alone.tokens)


def test_several_sentences_of_a_text_have_the_evidence_of_each(translator: Translator) -> None:
    parts = ["Satz 3 ja.", "Anders war es.", "Satz 12."]
    whole = translator.translate("  ".join(parts), split_sentences=True, evidence=True, n_best=2)
    alone = translator.translate(parts, evidence=True, n_best=2)
    for joined, single in (
        (whole, alone),
        (whole.alternatives[0], [each.alternatives[0] for each in alone]),
    ):
        expected = [token for each in single for token in each.tokens]
        assert [token.id for token in joined.tokens] == [token.id for token in expected]
        for mine, other in zip(joined.tokens, expected, strict=True):
            assert mine.evidence is not None
            assert other.evidence is not None
            assert mine.evidence.probability == pytest.approx(other.evidence.probability, abs=1e-4)
            assert [n.entry for n in mine.evidence.neighbours] == [n.entry for n in other.evidence.neighbours]
        assert log_sum(joined) / len(expected) == pytest.approx(joined.score, abs=1e-4)


def test_a_store_smaller_than_k_shows_what_it_has(
    tiny_checkpoint: Path, tiny: TransformerEngine, tmp_path: Path
) -> None:
    single = Datastore.build(tmp_path / "s", [replace(some_pairs(1)[0], target="ab")], tiny)
    translator = Translator(
        tiny_checkpoint, device="cpu", datastore=single, interpolation_weight=0.5, k=8, settings="raw"
    )
    (first, *_) = translator.translate("Satz 0 ", evidence=True).tokens
    assert first.evidence is not None
    assert len(first.evidence.neighbours) == single.entries == 3
    assert sum(near.weight for near in first.evidence.neighbours) == pytest.approx(1, abs=1e-6)
    assert torch.isfinite(torch.tensor([near.distance for near in first.evidence.neighbours])).all()
