"""A translator that is loaded serves as it is; another is loaded as asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt import Datastore, Translator
from knnmt.errors import SettingError
from knnmt.evaluation.loading import text_languages, translator_of, translator_of_store
from support.datastore_pairs import some_pairs


def test_what_is_loaded_is_used_and_what_would_do_nothing_refused(tiny_checkpoint: Path, tmp_path: Path) -> None:
    given = Translator(tiny_checkpoint, device="cpu")
    assert translator_of(given, source_lang="de") is given
    store = Datastore.build(tmp_path / "s", some_pairs(3), given.engine)
    assert translator_of_store(store, given) is given
    with pytest.raises(SettingError, match="device, threads: a loaded translator has its own"):
        translator_of(given, device="cpu", threads=1)
    with pytest.raises(SettingError, match="exact: a loaded translator"):
        translator_of_store(store, given, exact=True)
    assert translator_of_store(store, device="cpu").engine.fingerprint == given.engine.fingerprint


def test_the_languages_of_a_text(tiny_checkpoint: Path) -> None:
    given = Translator(tiny_checkpoint, device="cpu")
    assert text_languages(given, None, None) == text_languages(tiny_checkpoint, None, None) == ("de", "en")
    assert text_languages(given, "fr", None) == text_languages(tiny_checkpoint, "fr", None) == ("fr", "en")
