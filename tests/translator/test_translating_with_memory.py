"""Translating with datastores: adaptation, mixed batches, stores that change, smaller stores."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Literal

import pytest

from knnmt import Request, SegmentPair, Translation, Translator
from knnmt.calibration.index_choice import prepare
from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.datastore.store import Datastore
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreMismatchError, ModelNotFoundError, NotADatastoreError, SettingError
from knnmt.index.saved import build_index
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.settings import RetrievalKeywords, RetrievalSettings
from support import ROOT
from support.datastore_pairs import some_pairs
from support.german import german_memory, german_sentences
from support.index_stores import faiss_or_skip

MEMORY = german_memory(30)
HELD = [pair.source for pair in MEMORY[:8]]
NEW = german_sentences(40)[30:36]
_TEXTS = [
    ("Das Gerät wird mit dem Hauptschalter eingeschaltet.", "The grand lever energises the contraption."),
    ("Der Hauptschalter befindet sich an der Rückseite.", "The grand lever sits at the stern."),
    ("Die Anzeige leuchtet grün.", "The glimmer shines verdant."),
    ("Die Anzeige blinkt rot.", "The glimmer pulses crimson."),
    ("Drücken Sie die Taste.", "Kindly depress the knob."),
]
DEVICE_MEMORY = [SegmentPair(*texts, f"device.tsv#{n}") for n, texts in enumerate(_TEXTS)]
FIXED: RetrievalKeywords = {"k": 4, "interpolation_weight": 0.8, "temperature": 20.0}


@pytest.fixture(scope="module")
def store(engine: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    made = Datastore.build(tmp_path_factory.mktemp("stores") / "own.store", MEMORY, engine)
    prepare(made, engine)
    return made


@pytest.fixture(scope="module")
def device_store(engine: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    made = Datastore.build(tmp_path_factory.mktemp("stores") / "device.store", DEVICE_MEMORY, engine)
    prepare(made, engine)
    return made


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(device="cpu", settings="raw")


@pytest.fixture(scope="module")
def base(translator: Translator) -> list[str]:
    """What the model alone makes of what the store holds."""
    return [each.text for each in translator.translate(HELD)]


def assert_same(found: list[Translation], expected: list[Translation]) -> None:
    assert [each.text for each in found] == [each.text for each in expected]
    assert [[token.id for token in each.tokens] for each in found] == [
        [token.id for token in each.tokens] for each in expected
    ]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-4)


# What a memory does -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "least"), [({}, 0.4), ({"fading": False}, 0.8), (FIXED, 0.8)])
def test_what_a_memory_holds_is_translated_as_it_says(
    translator: Translator, store: Datastore, base: list[str], settings: RetrievalKeywords, least: float
) -> None:
    adapted = [each.text for each in translator.translate(HELD, datastore=store, **settings)]
    assert not set(base) & {pair.target for pair in MEMORY}
    same = sum(text == pair.target for text, pair in zip(adapted, MEMORY, strict=False))
    assert same >= least * len(HELD)


def test_new_text_takes_over_the_words_of_a_memory_and_other_text_does_not(
    translator: Translator, store: Datastore, device_store: Datastore
) -> None:
    terms = ("physician", "kid brother", "Board", "outfit", "Madam", "scholars", "angler", "not a soul")
    adapted = translator.translate(NEW, datastore=store, fading=False)
    assert sum(any(term in each.text for term in terms) for each in adapted) >= 0.6 * len(NEW)
    base = translator.translate(NEW)
    assert not any(term in each.text for term in terms for each in base)
    assert translator.translate("Die Anzeige leuchtet blau.", datastore=device_store).text.startswith("The glimmer")
    foreign = [each.text for each in translator.translate(NEW, datastore=device_store)]
    assert sum(text == each.text for text, each in zip(foreign, base, strict=True)) >= 0.8 * len(NEW)


@pytest.mark.parametrize("beam", [1, 5])
def test_a_weight_of_zero_is_the_model_alone(translator: Translator, store: Datastore, beam: int) -> None:
    n_best = min(beam, 2)
    base = translator.translate(NEW, beam=beam, n_best=n_best)
    found = translator.translate(NEW, beam=beam, n_best=n_best, datastore=store, interpolation_weight=0.0)
    assert {each.kind for each in found} == {"with memory"}
    for each, expected in zip(found, base, strict=True):
        alternatives = tuple(replace(other, coverage=None) for other in each.alternatives)
        assert replace(each, kind="model alone", coverage=None, alternatives=alternatives) == expected


@pytest.mark.parametrize("settings", [{}, {"cache": 15.0}], ids=["no cache", "cache by sentence"])
@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.soak), 5])
def test_a_result_does_not_depend_on_its_batch(store: Datastore, beam: int, settings: RetrievalKeywords) -> None:
    translator = Translator(device="cpu", datastore=store, exact=True, **settings, settings="raw")
    texts = NEW[:2] + [pair.source for pair in MEMORY[:2]]
    alone = [translator.translate(text, beam=beam) for text in texts]
    assert_same(translator.translate(texts, beam=beam), alone)
    assert_same(translator.translate(texts[::-1], beam=beam), alone[::-1])
    assert_same(translator.translate(texts[2:] + texts[:2], beam=beam, batch_size=2), alone[2:] + alone[:2])
    assert (translator.statistics.hits > 0) == ("cache" in settings)


def test_a_cache_of_the_batch_can_be_given_in_whole_settings(store: Datastore) -> None:
    saved = {}
    scopes: list[Literal["sentence", "batch"]] = ["sentence", "batch"]
    for scope in scopes:
        translator = Translator(device="cpu", datastore=store, settings="raw")
        config = translator.memories.retrieval(store, RetrievalSettings(cache="50%")).config
        assert config.cache is not None
        shared = replace(config, cache=replace(config.cache, scope=scope))
        translator = Translator(device="cpu", datastore=store, profile=shared, settings="raw")
        found = translator.translate([pair.source for pair in MEMORY[:8]])
        assert sum(each.text == pair.target for each, pair in zip(found, MEMORY, strict=False)) >= 4
        saved[scope] = translator.statistics.saved()
    assert 0 < saved["sentence"] < saved["batch"]


# Requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.soak), 5])
def test_requests_for_several_stores_and_none_are_as_if_each_came_alone(
    translator: Translator, store: Datastore, device_store: Datastore, beam: int
) -> None:
    texts = [NEW[0], "Die Anzeige leuchtet rot.", NEW[1], "Drücken Sie die Taste.", MEMORY[5].source, NEW[2]]
    stores = [store, device_store, None, device_store.path, str(store.path), device_store]
    requests = [Request(text, datastore) for text, datastore in zip(texts, stores, strict=True)]
    together = translator.translate(requests, beam=beam)
    alone = [translator.translate(text, beam=beam, datastore=each) for text, each in zip(texts, stores, strict=True)]
    assert_same(together, alone)
    assert together[3].text == "Kindly depress the knob."
    assert together[4].text == MEMORY[5].target
    assert_same([translator.translate(request, beam=beam) for request in requests], alone)


def test_requests_bring_settings_of_their_own(translator: Translator, store: Datastore) -> None:
    text = MEMORY[2].source
    own: list[RetrievalKeywords] = [
        {"k": 1},
        {"interpolation_weight": 0.3},
        {"temperature": 300.0},
        {},
        {"cache": 6.0},
        {"forms": False},
    ]
    requests = [Request(text, store, **each) for each in own]
    together = translator.translate(requests, **FIXED)
    merged: list[RetrievalKeywords] = [{**FIXED, **each} for each in own]
    assert_same(together, [translator.translate(text, datastore=store, **each) for each in merged])
    assert len({each.score for each in together[:4]}) == 4


def test_the_model_is_by_default_the_one_that_the_store_was_built_with(tiny_checkpoint: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(tiny_checkpoint, tmp_path / "own"))
    made = Datastore.build(tmp_path / "s", some_pairs(3), load_engine(str(own), device="cpu"))
    assert Translator(device="cpu", datastore=made, settings="raw").engine.name == str(own)
    with pytest.raises(DatastoreMismatchError, match="Use the model it was built with"):
        Translator("de-en", device="cpu", datastore=made, settings="raw")
    shutil.rmtree(own)
    with pytest.raises(ModelNotFoundError, match=r"own', which is not on this machine.*: --model DIRECTORY"):
        Translator(device="cpu", datastore=made, settings="raw")


def test_a_translator_has_defaults_that_a_call_overrides(
    translator: Translator, store: Datastore, device_store: Datastore
) -> None:
    adapted = Translator(device="cpu", datastore=store, **FIXED, settings="raw")
    text = MEMORY[3].source
    assert_same([adapted.translate(text)], [translator.translate(text, datastore=store, **FIXED)])
    assert_same([adapted.translate(text, datastore=None)], [translator.translate(text)])
    assert_same([adapted.translate(Request(text, None))], [translator.translate(text)])
    assert_same([adapted.translate(Request(text))], [adapted.translate(text)])
    weaker: RetrievalKeywords = {"k": 4, "interpolation_weight": 0.1, "temperature": 20.0}
    assert_same(
        [adapted.translate(text, interpolation_weight=0.1)], [translator.translate(text, datastore=store, **weaker)]
    )
    other = adapted.translate(DEVICE_MEMORY[4].source, datastore=device_store)
    assert other.text == DEVICE_MEMORY[4].target


def test_a_store_that_is_gone_disturbs_only_those_who_name_it(
    engine: TransformerEngine, translator: Translator, store: Datastore, tmp_path: Path
) -> None:
    gone = Datastore.build(tmp_path / "gone", DEVICE_MEMORY, engine)
    assert translator.translate(DEVICE_MEMORY[4].source, datastore=gone).text == DEVICE_MEMORY[4].target
    shutil.rmtree(gone.path)
    assert translator.translate(MEMORY[0].source, datastore=store).text == MEMORY[0].target
    with pytest.raises(NotADatastoreError, match="gone"):
        translator.translate("Ja.", datastore=gone)


# Stores that change -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, "exact", "ivfpq"])
def test_changes_by_others_count_in_the_next_call(
    engine: TransformerEngine, store: Datastore, tmp_path: Path, kind: str | None
) -> None:
    if kind == "ivfpq":
        faiss_or_skip()
    copied = Datastore.open(shutil.copytree(store.path, tmp_path / "live"))
    if kind is not None:
        build_index(copied, kind)
    translator = Translator(device="cpu", datastore=copied.path, **FIXED, settings="raw")
    text = "Der Drucker ist leer."
    before = translator.translate(text).text

    writer = Datastore.open(copied.path)
    first = SegmentPair(text, "Feed the hungry printer.", "fix#1")
    writer.add([first], engine)
    assert translator.translate(text).text == first.target
    assert translator.translate(text, match=True).match is not None

    second = SegmentPair(text, "The ink has run dry, alas.", "fix#1")
    writer.replace(lambda pair: pair.origin == "fix#1", [second], engine)
    assert translator.translate(text).text == second.target

    writer.remove(lambda pair: pair.origin == "fix#1")
    assert translator.translate(text).text == before
    assert translator.translate(text, match=True).match is None

    writer.add([first], engine)
    writer.compact()
    assert translator.translate(text).text == first.target
    assert translator.translate(MEMORY[7].source).text == MEMORY[7].target


def test_a_change_counts_from_the_next_window_of_a_stream(
    engine: TransformerEngine, device_store: Datastore, tmp_path: Path
) -> None:
    copied = Datastore.open(shutil.copytree(device_store.path, tmp_path / "live"))
    translator = Translator(device="cpu", datastore=copied, **FIXED, settings="raw")
    text = "Der Drucker ist leer."
    stream = translator.stream([text, text], window=1)
    before = next(stream).text
    copied.add([SegmentPair(text, "Feed the hungry printer.", "fix#1")], engine)
    assert next(stream).text == "Feed the hungry printer." != before


def test_a_store_with_nothing_left_is_the_model_alone(
    engine: TransformerEngine, translator: Translator, tmp_path: Path
) -> None:
    emptied = Datastore.build(tmp_path / "s", DEVICE_MEMORY, engine)
    emptied.remove(lambda pair: True)
    assert_same(translator.translate(NEW[:3], datastore=emptied, **FIXED), translator.translate(NEW[:3]))
    emptied.add(DEVICE_MEMORY, engine)
    text = DEVICE_MEMORY[0].source
    assert translator.translate(text, datastore=emptied, **FIXED).text == DEVICE_MEMORY[0].target


# Smaller stores and indexes ---------------------------------------------------------------------------------------


def test_reduced_and_pruned_stores_translate_with_the_settings_of_the_store_they_come_from(
    translator: Translator, store: Datastore, tmp_path: Path
) -> None:
    reduced, _ = reduce(store, tmp_path / "reduced", 64)
    pruned = prune(reduced, tmp_path / "pruned", StoreIndex(reduced).search)
    for smaller, made in ((reduced, "pca:64"), (pruned, "pca:64+prune:k=2,seed=0")):
        found = translator.translate(HELD, datastore=smaller, fading=False)
        assert sum(each.text == pair.target for each, pair in zip(found, MEMORY, strict=False)) >= 6
        signature = translator.signature(datastore=smaller, cache="20%")
        whole = translator.signature(datastore=store, cache="20%")
        entries = f"n:{smaller.entries}|d:64|made:{made}|content:{smaller.manifest.content[:8]}"
        assert f"|store:{smaller.path.name}|{entries}|index:exact|k:8|" in signature
        assert signature.partition("|k:")[2] == whole.partition("|k:")[2]  # the settings are inherited
    assert pruned.entries < reduced.entries

    unprepared, _ = reduce(store, tmp_path / "unprepared", 64)
    (unprepared.path / "settings.json").unlink()
    with pytest.raises(SettingError, match=r"settings were not estimated\. Tune it .* or give λ and the temp"):
        translator.translate("Ja.", datastore=unprepared)
    told = translator.translate(HELD, datastore=unprepared, **FIXED)
    assert sum(each.text == pair.target for each, pair in zip(told, MEMORY, strict=False)) >= 6


def test_the_signature_says_what_a_call_retrieves_with(
    store: Datastore, device_store: Datastore, tmp_path: Path
) -> None:
    faiss_or_skip()
    indexed = Datastore.open(shutil.copytree(store.path, tmp_path / "indexed.store"))
    build_index(indexed, "ivfpq")
    settings: RetrievalKeywords = {**FIXED, "cache": 6}
    translator = Translator(device="cpu", datastore=indexed, **settings, settings="raw")
    config = translator.decoding()
    model = f"model:de-en|dtype:float32|weights:{translator.engine.fingerprint.model[:8]}"
    base = f"{model}|{config.signature()}|text:raw"
    indexed_store = f"store:indexed.store|n:{store.entries}|d:320"
    whole = translator.signature()
    content = f"content:{store.manifest.content[:8]}"
    assert whole.startswith(f"{base}|{indexed_store}|{content}|index:ivfpq/")
    assert whole.endswith("|k:4|lambda:0.8|T:20|cache:6|v:0.1.0")
    assert translator.signature(datastore=None) == f"{base}|v:0.1.0"
    other = translator.signature(datastore=device_store, cache=None, k=2)
    content = f"content:{device_store.manifest.content[:8]}"
    whole = f"|store:device.store|n:{device_store.entries}|d:320|{content}|k:2|lambda:0.8|T:20|segments:512|cache:no|v:"
    assert whole in other
    paper = RetrievalConfig(4, 0.8, 20.0, use_counts=False, cache=CacheConfig(6, "batch", keep_hits=True))
    assert "|counts:no|cache:6+batch+hits|" in translator.signature(profile=paper)
    exact = Translator(device="cpu", datastore=indexed, search="whole", exact=True)
    assert "|text:split+protect/auto|matches:use/100|store:indexed.store|" in exact.signature()
    assert "|index:exact|k:8|lambda:0." in exact.signature()
    assert "~" in exact.signature().partition("|lambda:")[2].partition("|")[0]  # it fades


def test_a_store_made_anew_at_the_same_place_is_noticed(
    translator: Translator, store: Datastore, tmp_path: Path
) -> None:
    """A reduced store is always of generation 1: what it is made of must tell."""
    place = tmp_path / "reduced"
    reduce(store, place, 64)
    translator.translate("Ja.", datastore=place, evidence=True)
    shutil.rmtree(place)
    again, _ = reduce(store, place, 32)
    found = translator.translate(MEMORY[0].source, datastore=place, evidence=True, **FIXED)
    why = found.tokens[0].evidence
    assert why is not None
    assert again.entry(why.neighbours[0].entry).pair == why.neighbours[0].pair
    assert (
        found.text
        == Translator(device="cpu", settings="raw").translate(MEMORY[0].source, datastore=place, **FIXED).text
    )


def test_the_papers_index_of_a_memory_that_repeats_itself(
    translator: Translator, engine: TransformerEngine, tmp_path: Path
) -> None:
    """Codes of keys that are searched with themselves have squared distances a little below 0."""
    faiss_or_skip()
    pairs = list(islice(read_files([ROOT / "examples" / "memory.tsv"], ReadingConfig(), ReadingReport()), 9))
    made = Datastore.build(tmp_path / "own.store", 8 * pairs, engine)
    prepare(made, engine, kinds=["ivfpq"])
    found = translator.translate([pair.source for pair in pairs], datastore=made)
    assert [each.error for each in found] == [None] * 9
    assert sum(each.text == pair.target for each, pair in zip(found, pairs, strict=True)) >= 7
