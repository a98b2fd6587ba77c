"""Steps as tensors: what they say is what the model and the keys say when asked again, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt import Request, Translation, Translator
from knnmt.datastore.store import Datastore
from knnmt.engine.forced import force
from knnmt.engine.transformer import TransformerEngine
from knnmt.translator.steps import Steps
from support.datastore_pairs import some_pairs

TEXTS = ["Satz 3 ja ja", "Satz 12", "anders"]
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(25), tiny)


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path, store: Datastore) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", datastore=store, settings="raw")


def test_they_print_as_one_line(translator: Translator) -> None:
    found = translator.translate("Satz 12", steps=True, k=4)
    assert f"steps=<Steps of {len(found.tokens)} tokens, k 4>" in repr(found)


def ranked(translations: list[Translation]) -> Iterator[tuple[Translation, Steps]]:
    for best in translations:
        for each in (best, *best.alternatives):
            assert each.steps is not None
            yield each, each.steps


def test_they_are_what_the_keys_and_the_model_say(
    translator: Translator, tiny: TransformerEngine, store: Datastore
) -> None:
    """Against all keys of the store by numpy, equation 2, and a forced pass of the model alone."""
    keys = np.stack([store.entry(entry).key for entry in range(store.entries)]).astype(np.float64)
    searched = 0
    found = translator.translate(TEXTS, n_best=2, steps=True, interpolation_weight=0.6, k=4, temperature=20.0)
    for each, steps in ranked(found):
        ids = [token.id for token in each.tokens]
        forced = force(tiny, tiny.tokenizer.encode_sources([each.source]), [ids])
        model = tiny.log_probabilities(forced.representations).exp()
        assert steps.ids.shape == steps.tokens.shape == steps.distances.shape == steps.weights.shape == (len(ids), 4)
        assert not steps.cached.any()
        for step, token in enumerate(ids):
            if steps.forced[step]:
                assert step == 38  # the end of the longest translation
                assert steps.model_probabilities[step] == 1
                assert steps.ids[step].tolist() == steps.tokens[step].tolist() == [-1] * 4
                assert not steps.weights[step].any()
                assert steps.distances[step].isinf().all()
                continue
            state = forced.representations[step].double().numpy()
            true = np.linalg.norm(keys - state, axis=1)
            mine = steps.ids[step].tolist()
            assert steps.distances[step].numpy() == pytest.approx(true[mine], abs=1e-3)
            assert true[mine[0]] == pytest.approx(true.min(), abs=1e-3)
            assert steps.tokens[step].tolist() == [store.entry(entry).value for entry in mine]
            shares = np.exp(-np.square(true[mine]) / 20.0)
            assert steps.weights[step].numpy() == pytest.approx(shares / shares.sum(), abs=1e-3)
            assert float(steps.interpolation_weights[step]) == pytest.approx(0.6)
            assert float(steps.model_probabilities[step]) == pytest.approx(float(model[step, token]), abs=1e-5)
            searched += 1
    assert searched > 50


@pytest.mark.parametrize("settings", [{}, {"cache": 5.0}, {"interpolation_weight": 0.3, "k": 2}], ids=str)
def test_they_agree_with_evidence_and_cost_no_result(translator: Translator, settings: dict[str, float]) -> None:
    both = translator.translate(TEXTS, evidence=True, steps=True, **settings)  # type: ignore[call-overload]
    assert [each.text for each in both] == [each.text for each in translator.translate(TEXTS, **settings)]  # type: ignore[call-overload]
    alone = translator.translate(TEXTS, steps=True, **settings)  # type: ignore[call-overload]
    for (each, steps), (_, other) in zip(ranked(both), ranked(alone), strict=True):
        assert torch.equal(steps.ids, other.ids)
        assert torch.equal(steps.weights, other.weights)
        for number, token in enumerate(each.tokens):
            why = token.evidence
            assert why is not None
            there = steps.ids[number] >= 0
            assert [near.entry for near in why.neighbours] == steps.ids[number][there].tolist()
            assert [near.distance for near in why.neighbours] == steps.distances[number][there].tolist()
            assert [near.weight for near in why.neighbours] == steps.weights[number][there].tolist()
            assert (why.cached, why.forced) == (bool(steps.cached[number]), bool(steps.forced[number]))
            assert why.interpolation_weight == float(steps.interpolation_weights[number])
            own = steps.weights[number][steps.tokens[number] == token.id].sum()
            assert why.memory_probability == pytest.approx(float(own), abs=1e-6)


def test_a_text_has_its_own_k_and_the_steps_of_all_its_sentences(translator: Translator, store: Datastore) -> None:
    wide, narrow, none = translator.translate(
        [Request(TEXTS[0], store, k=6), Request(TEXTS[1], store, k=2), Request(TEXTS[2], None)], steps=True
    )
    assert wide.steps is not None
    assert narrow.steps is not None
    assert (wide.steps.ids.shape[1], narrow.steps.ids.shape[1], none.steps) == (6, 2, None)
    alone = translator.translate(TEXTS[1], k=2, steps=True).steps
    assert alone is not None
    assert torch.equal(narrow.steps.ids, alone.ids)

    parts = ["Satz 3 ja.", "Anders war es."]
    whole = translator.translate("  ".join(parts), split_sentences=True, steps=True, beam=1)
    expected = [each.steps.ids for each in translator.translate(parts, steps=True, beam=1) if each.steps]
    assert whole.steps is not None
    assert torch.equal(whole.steps.ids, torch.cat(expected))
    assert len(whole.steps.ids) == len(whole.tokens)


def test_they_come_only_when_asked_for(translator: Translator) -> None:
    assert translator.translate(TEXTS[0], evidence=True).steps is None
    asked = translator.translate(TEXTS[0], steps=True)
    assert not any(token.evidence for token in asked.tokens)
    assert asked.text == translator.translate(TEXTS[0]).text
