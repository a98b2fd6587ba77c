"""Whether a tokenizer belongs to its weights: sound ones do, a wrong vocabulary on either side does not."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from knnmt import Translator, adapt
from knnmt.corpus.pairs import SegmentPair
from knnmt.decoding.tokenizer_check import own_tokens, require_own_tokens
from knnmt.engine.checkpoint import find_checkpoint
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import CheckpointError
from support.checkpoints import own_engine
from support.datastore_pairs import some_pairs

SUBJECTS = ("Die Verwaltung", "Der zweite Antrag", "Unsere alte Druckerei", "Das Wörterbuch", "Jede Lieferung")
PREDICATES = (
    "wird nach der Prüfung durch den Ausschuss noch einmal vollständig überarbeitet",
    "enthält mehrere Hinweise, die bisher niemand beachtet hat",
    "muss spätestens am Ende des Monats in der Hauptstadt eintreffen",
    "kostet seit dem vergangenen Sommer fast doppelt so viel wie früher",
    "steht wegen eines Fehlers im Verzeichnis an der falschen Stelle",
    "gilt auch für Mitglieder, die ihren Beitrag erst später bezahlen",
)
GERMAN = [SegmentPair(f"{subject} {predicate}.", "", "") for subject in SUBJECTS for predicate in PREDICATES]


class OtherTargets:
    """A tokenizer that encodes target text with another vocabulary than the one that decodes."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return [[1 + token % 90 if token else 0 for token in tokens] for tokens in self._own.encode_targets(texts)]


def with_other_targets(checkpoint: Path) -> TransformerEngine:
    engine = own_engine(checkpoint)
    engine.tokenizer = OtherTargets(engine.tokenizer)
    return engine


def test_sound_tokenizers_give_the_tokens_that_the_models_made(tiny: TransformerEngine) -> None:
    found = own_tokens(tiny, some_pairs(60))
    assert found.translated == found.same >= 20
    assert found.example is None
    found = own_tokens(load_engine("de-en", "cpu"), GERMAN)
    assert found.translated == len(GERMAN)
    assert found.same >= 0.8 * found.translated
    assert found.fits


def test_a_vocabulary_in_another_order_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    shutil.copytree(find_checkpoint("de-en"), wrong)
    content = json.loads((wrong / "tokenizer.json").read_text(encoding="utf-8"))
    pieces = content["model"]["vocab"]
    first = 1 + max(token["id"] for token in content["added_tokens"] if token["id"] < 300)
    places = range(first, len(pieces))
    other = random.Random(0).sample(places, len(places))
    content["model"]["vocab"] = [*pieces[:first], *(pieces[place] for place in other)]
    (wrong / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"its tokenizer does not belong to its weights\. Of 30 translations"):
        require_own_tokens(load_engine(wrong, "cpu"), GERMAN)


def test_few_translations_show_nothing(tiny_checkpoint: Path) -> None:
    engine = with_other_targets(tiny_checkpoint)
    require_own_tokens(engine, some_pairs(19))
    with pytest.raises(CheckpointError, match=r"the model made `.+`, and the tokenizer makes `.+` of the same text"):
        require_own_tokens(engine, some_pairs(60))


def test_adapt_refuses_a_wrong_vocabulary_before_it_builds(tiny_checkpoint: Path, tmp_path: Path) -> None:
    translator = Translator(tiny_checkpoint, device="cpu")
    translator.engine = with_other_targets(tiny_checkpoint)
    with pytest.raises(CheckpointError, match="only 0 have the tokens that the model made"):
        adapt(some_pairs(60), tmp_path / "s", model=translator)
    assert not list(tmp_path.iterdir())
