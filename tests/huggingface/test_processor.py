"""With our processor, `generate` of `transformers` finds what our own decoding finds, and draws from equation 3."""

from __future__ import annotations

import lzma
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from knnmt import KNNLogitsProcessor, SegmentPair, Translator
from knnmt.calibration.index_choice import prepare
from knnmt.compression.pca import reduce
from knnmt.config import CacheConfig, Fading, FastConfig, RetrievalConfig
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.shipped import MODELS_DIRECTORY
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.retrieval.gate import GateNetwork, GateRecord, TrainedGate
from knnmt.retrieval.profiles import Profile, write_profiles
from support import ROOT
from support.checkpoints import MakeCheckpoint
from support.datastore_pairs import some_pairs
from support.dense_mixture import DenseMixture
from support.domain_text import domain_lines
from support.family_checkpoints import load_reference, make_family
from support.german import german_memory
from support.transformers_search import SETTINGS, TIE, generate, load_transformers

pytestmark = pytest.mark.filterwarnings("ignore:a translation reached the limit")
TEXTS = ["Satz 3 ja ja", "Satz 12", "Satz 7 nein", "anders", "Satz 100 ja", "Datei", "Satz 1 ja ", "ja"]
FADING = Fading(scale=8.0, width=2.0, sentence_scale=9.0, sentence_width=1.5)
FIXED = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=20.0)
FADED = replace(FIXED, fading=FADING)
CACHED = replace(FIXED, interpolation_weight=0.45, cache=CacheConfig(2.0))
FADED_CACHED = replace(CACHED, fading=FADING)
WAYS = {"fixed": FIXED, "fading": FADED, "fixed, cache": CACHED, "fading, cache": FADED_CACHED}


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(30), tiny)


@pytest.fixture(scope="module")
def checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    return make_checkpoint(generation={"max_length": 16})


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Any:
    return load_transformers(checkpoint)


@pytest.fixture(scope="module")
def sources(tiny: TransformerEngine) -> list[list[int]]:
    return tiny.tokenizer.encode_sources(TEXTS)


def translated(translator: Translator, texts: list[str], **settings: Any) -> list[list[Hypothesis]]:
    """Our own decoding of the texts as they are, as hypotheses."""
    found = translator.translate(texts, forms=False, **settings)
    return [
        [Hypothesis(tuple(token.id for token in each.tokens), each.score) for each in (best, *best.alternatives)]
        for best in found
    ]


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], scored: bool = True) -> None:
    """The same best hypotheses; others may be different where their scores are equal."""
    assert [best.tokens for best, *_ in found] == [best.tokens for best, *_ in expected]
    if scored:
        scores = [each.score for some in found for each in some]
        assert scores == pytest.approx([each.score for some in expected for each in some], abs=TIE)


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("way", list(WAYS))
def test_generate_finds_what_our_own_decoding_finds(
    checkpoint: Path, store: Datastore, model: Any, sources: list[list[int]], beam: int, way: str
) -> None:
    translator = Translator(checkpoint, device="cpu", datastore=store, profile=WAYS[way], settings="raw")
    n_best = min(beam, 3)
    expected = translated(translator, TEXTS, beam=beam, n_best=n_best)
    with KNNLogitsProcessor(model, store, profile=WAYS[way]) as knn:
        found = generate(model, sources, beam, n_best, logits_processor=[knn])
    assert_same(found, expected, scored=beam > 1)
    plain = generate(model, sources, beam, n_best)
    assert sum(a[0].tokens != b[0].tokens for a, b in zip(found, plain, strict=True)) > 2
    assert len({len(each[0].tokens) for each in found}) > 1  # sentences end, and stay in the batch, at different steps


@pytest.mark.parametrize(
    ("beam", "name"),
    [
        *((4, name) for name in SETTINGS if name not in ("plain", "other special tokens")),
        *((1, name) for name in ("cut", "first token", "no padding, no 99", "a bad phrase", "at least eight")),
    ],
)
def test_forced_and_forbidden_tokens_come_after_the_mixture_as_in_our_own_decoding(
    make_checkpoint: MakeCheckpoint, store: Datastore, sources: list[list[int]], name: str, beam: int
) -> None:
    directory = make_checkpoint(generation={"max_length": 12, **SETTINGS[name]})
    translator = Translator(directory, device="cpu", datastore=store, profile=FADED_CACHED, settings="raw")
    model = load_transformers(directory)
    with KNNLogitsProcessor(model, store, profile=FADED_CACHED) as knn:
        found = generate(model, sources[:4], beam, beam, logits_processor=[knn])
    assert_same(found, translated(translator, TEXTS[:4], beam=beam, n_best=beam), scored=beam > 1)


@pytest.mark.parametrize("beam", [1, 5])
def test_a_weight_of_zero_is_plain_generate(store: Datastore, model: Any, sources: list[list[int]], beam: int) -> None:
    plain = generate(model, sources, beam, min(beam, 3))
    for fading in (False, True):
        with KNNLogitsProcessor(model, store, interpolation_weight=0.0, temperature=10.0, fading=fading) as knn:
            found = generate(model, sources, beam, min(beam, 3), logits_processor=[knn])
        if beam > 1:
            assert found == plain  # to the last bit
        assert_same(found, plain, scored=False)


class Recorder:
    """Behind our processor in the list: remembers what it gave."""

    def __init__(self) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.steps.append((input_ids, scores))
        return scores


@pytest.mark.parametrize("way", list(WAYS))
def test_sampling_draws_from_equation_3_computed_densely(
    tiny: TransformerEngine,
    store: Datastore,
    model: Any,
    sources: list[list[int]],
    way: str,
) -> None:
    recorder = Recorder()
    torch.manual_seed(3)
    with KNNLogitsProcessor(model, store, exact=True, profile=WAYS[way]) as knn:
        generate(
            model,
            sources,
            1,
            1,
            logits_processor=[knn, recorder],
            do_sample=True,
            top_k=0,
            max_length=13,
            forced_eos_token_id=None,
        )
    reference = DenseMixture(tiny, store, WAYS[way])
    assert len(recorder.steps) == 12
    last_prefixes, _ = recorder.steps[-1]
    for row, source in enumerate(sources):
        # The model's own states: λ is steep near a state of the store, and those of compiled code are 1e-5 apart.
        with torch.no_grad():
            found = model.model(input_ids=torch.tensor([source]), decoder_input_ids=last_prefixes[row][None])
        expected = reference.log_probabilities(found.last_hidden_state[:, None])[0, 0]
        given = torch.stack([scores[row] for _, scores in recorder.steps])
        torch.testing.assert_close(given, expected, atol=TIE, rtol=0)


def test_samples_of_one_sentence_share_its_cache_and_its_distances(
    store: Datastore, model: Any, sources: list[list[int]]
) -> None:
    recorder = Recorder()
    torch.manual_seed(3)
    ids = torch.tensor([sources[0], sources[0]])
    options = {"do_sample": True, "num_beams": 1, "num_return_sequences": 3, "max_length": 9, "top_k": 20}
    with KNNLogitsProcessor(model, store, profile=FADED_CACHED) as knn:
        found = model.generate(ids, attention_mask=torch.ones_like(ids), logits_processor=[knn, recorder], **options)
        assert knn.statistics.first_rows == 2  # the three are still one
        assert knn.statistics.rows == 2 + 6 * (len(recorder.steps) - 2)  # nor does the last, which is forced, search
    assert len(found) == 6
    assert len({tuple(row) for row in found.tolist()}) > 1
    first = recorder.steps[0][1]
    torch.testing.assert_close(first, first[:1].expand(6, -1), atol=TIE, rtol=0)
    torch.testing.assert_close(first.exp().sum(1), torch.ones(6))


@pytest.mark.parametrize("name", ["plain", "first token"])
def test_statistics_are_those_of_our_own_decoding(
    make_checkpoint: MakeCheckpoint, store: Datastore, sources: list[list[int]], name: str
) -> None:
    directory = make_checkpoint(generation={"max_length": 16, **SETTINGS[name]})
    translator = Translator(directory, device="cpu", datastore=store, profile=FADED_CACHED, settings="raw")
    model = load_transformers(directory)
    with KNNLogitsProcessor(model, store, profile=FADED_CACHED) as knn:
        for text, source in zip(
            TEXTS[:4], sources[:4], strict=True
        ):  # one by one: in a batch `generate` goes on with the done
            generate(model, [source], 4, 1, logits_processor=[knn])
            translator.translate(text, beam=4, forms=False)
            assert knn.statistics == translator.statistics
    assert knn.statistics.first_rows == 4  # until a token was chosen a sentence has one row
    assert 0 < knn.statistics.hits < knn.statistics.rows


def test_what_processors_before_it_add_is_added_to_the_mixture(
    tiny: TransformerEngine, store: Datastore, model: Any, sources: list[list[int]]
) -> None:
    recorder = Recorder()
    options: dict[str, Any] = {"repetition_penalty": 1.7, "max_length": 9, "forced_eos_token_id": None}
    with KNNLogitsProcessor(model, store, exact=True, profile=FIXED) as knn:
        generate(model, sources[6:7], 1, 1, logits_processor=[knn, recorder], **options)
    prefix, given = recorder.steps[-1][0][0], torch.stack([scores[0] for _, scores in recorder.steps])
    states = tiny.step(tiny.start(tiny.encode(sources[6:7])), prefix[None, None])
    mixture = DenseMixture(tiny, store, FIXED).log_probabilities(states)[0, 0]
    with torch.no_grad():
        logits = model(torch.tensor(sources[6:7]), decoder_input_ids=prefix[None]).logits[0]
    assert len(given) == 8
    for step in range(len(given)):
        seen = torch.tensor(sorted(set(prefix[: step + 1].tolist())))
        penalised = torch.where(logits[step, seen] < 0, logits[step, seen] * 1.7, logits[step, seen] / 1.7)
        mixture[step, seen] += penalised - logits[step, seen]
    torch.testing.assert_close(given, mixture, atol=TIE, rtol=0)


def test_one_processor_serves_calls_of_different_shapes_also_after_one_that_was_broken_off(
    store: Datastore, model: Any, sources: list[list[int]]
) -> None:
    def interrupt(input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.shape[1] == 4:
            raise KeyboardInterrupt
        return scores

    with KNNLogitsProcessor(model, store, profile=FADED_CACHED) as knn:
        expected = generate(model, sources, 4, 1, logits_processor=[knn])
        with pytest.raises(KeyboardInterrupt):
            generate(model, sources[3:6], 2, 1, logits_processor=[knn, interrupt])
        with torch.no_grad():
            model(torch.tensor(sources[:1]), decoder_input_ids=torch.tensor([[230, 5]]))
        for i in range(0, len(sources), 3):
            assert_same(generate(model, sources[i : i + 3], 4, 1, logits_processor=[knn]), expected[i : i + 3], True)
        greedy = generate(model, sources, 1, 1, logits_processor=[knn])
    with KNNLogitsProcessor(model, store, profile=FADED_CACHED) as knn:
        assert_same(generate(model, sources, 1, 1, logits_processor=[knn]), greedy, scored=False)


def test_a_call_of_generate_takes_the_newest_generation_of_the_store(
    tiny: TransformerEngine, store: Datastore, model: Any, sources: list[list[int]], tmp_path: Path
) -> None:
    shutil.copytree(store.path, tmp_path / "s")
    with KNNLogitsProcessor(model, tmp_path / "s", profile=FIXED) as knn:
        before = generate(model, sources, 4, 1, logits_processor=[knn])
        Datastore.open(tmp_path / "s").add(some_pairs(30, start=200), tiny)
        after = generate(model, sources, 4, 1, logits_processor=[knn])
    with KNNLogitsProcessor(model, tmp_path / "s", profile=FIXED) as knn:
        assert_same(generate(model, sources, 4, 1, logits_processor=[knn]), after, scored=True)
    assert [each[0].tokens for each in before] != [each[0].tokens for each in after]


def test_without_settings_they_are_the_translators(checkpoint: Path, store: Datastore, model: Any) -> None:
    translator = Translator(checkpoint, device="cpu", datastore=store, settings="raw")
    with KNNLogitsProcessor(model, store) as knn:
        (sources,) = (translator.engine.tokenizer.encode_sources(TEXTS),)
        found = generate(model, sources, 5, 1, logits_processor=[knn])
    assert_same(found, translated(translator, TEXTS), scored=True)


@pytest.mark.parametrize("family", ["fsmt", "m2m100", "t5"])
def test_other_families_find_what_our_own_decoding_finds(family: str, tmp_path: Path) -> None:
    directory = make_family(
        tmp_path, family, {"max_length": 14, "forced_bos_token_id": 0 if family == "m2m100" else None}
    )
    translator = Translator(directory, device="cpu", settings="raw")
    store = Datastore.build(tmp_path / "store", some_pairs(20), translator.engine)
    sources = translator.engine.tokenizer.encode_sources(TEXTS)
    expected = translated(translator, TEXTS, beam=4, datastore=store, profile=FADED_CACHED)
    model = load_reference(directory)
    with KNNLogitsProcessor(model, store, profile=FADED_CACHED) as knn:
        assert_same(generate(model, sources, 4, 1, logits_processor=[knn]), expected)


def test_a_gate_decides_as_in_our_own_decoding(
    checkpoint: Path, store: Datastore, model: Any, sources: list[list[int]], tmp_path: Path
) -> None:
    gated = Datastore.open(shutil.copytree(store.path, tmp_path / "s"))
    manifest = gated.manifest
    features = ("confidence",)
    torch.manual_seed(5)
    network = GateNetwork(32 + 1)
    with torch.no_grad():
        network.layers[-1].bias.zero_()  # type: ignore[operator]
        network.layers[-1].weight.normal_()  # type: ignore[operator]
    record = GateRecord(
        features=features,
        k=4,
        temperature=20.0,
        use_counts=True,
        model=manifest.model,
        tokenizer=manifest.tokenizer,
        dim=32,
        transforms=(),
        seed=0,
        l1=0.0,
        pairs=9,
        epochs=1,
        losses={},
    )
    TrainedGate(network, record).write(gated.path)
    translator = Translator(checkpoint, device="cpu", datastore=gated, gate=0.5, settings="raw")
    with KNNLogitsProcessor(model, gated, gate=0.5) as knn:
        for beam in (1, 4):
            found = generate(model, sources, beam, 1, logits_processor=[knn])
            assert_same(found, translated(translator, TEXTS, beam=beam), scored=beam > 1)
    assert 0.1 < knn.statistics.searches / knn.statistics.rows < 0.9


def test_fast_knn_mt_is_refused_also_as_a_profile_that_was_made_since(
    tiny: TransformerEngine, model: Any, sources: list[list[int]], tmp_path: Path
) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(8), tiny, BuildConfig(for_fast=True))
    refusal = pytest.raises(SettingError, match=r"Fast kNN-MT needs the source .*profile='estimated'")
    with refusal:
        KNNLogitsProcessor(model, store, fast=True)
    with pytest.raises(SettingError, match=r"retrieval by segment needs the source .*profile='estimated'"):
        KNNLogitsProcessor(model, store, segments=2)
    by_segment = RetrievalConfig(4, 0.5, 20.0, segments=2)
    write_profiles(store.path, {"segments": Profile(by_segment, "likelihood", 9, None)}, "segments")
    with KNNLogitsProcessor(model, store) as knn:  # what nobody asked for gives way
        assert knn._retrieval().config.segments is None
    with pytest.raises(SettingError, match="retrieval by segment needs the source"):
        KNNLogitsProcessor(model, store, profile="segments")
    fast = RetrievalConfig(4, 0.5, 0.1, fast=FastConfig(8))
    with KNNLogitsProcessor(model, store) as knn:
        write_profiles(store.path, {"fast": Profile(fast, "likelihood", 9, None)}, "fast")
        with refusal:
            generate(model, sources, 1, 1, logits_processor=[knn])
    with refusal:
        KNNLogitsProcessor(model, store)
    with KNNLogitsProcessor(model, store, profile="estimated") as knn:
        generate(model, sources, 1, 1, logits_processor=[knn])
    assert knn.statistics.searches > 0


def test_a_reduced_store_is_searched_with_reduced_states(
    checkpoint: Path, store: Datastore, model: Any, sources: list[list[int]], tmp_path: Path
) -> None:
    reduced, _ = reduce(store, tmp_path / "reduced", 12)
    translator = Translator(checkpoint, device="cpu", datastore=reduced, profile=FIXED, settings="raw")
    with KNNLogitsProcessor(model, reduced, profile=FIXED) as knn:
        found = generate(model, sources, 4, 1, logits_processor=[knn])
    assert_same(found, translated(translator, TEXTS, beam=4), scored=True)


def test_a_model_in_bfloat16_mixes_in_float32(
    tiny: TransformerEngine, checkpoint: Path, store: Datastore, sources: list[list[int]]
) -> None:
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(checkpoint, dtype=torch.bfloat16).eval()
    recorder = Recorder()
    with KNNLogitsProcessor(model, store, profile=FIXED) as knn:
        generate(model, sources, 4, 1, logits_processor=[knn, recorder], max_length=9, forced_eos_token_id=None)
    for _, scores in recorder.steps:
        assert scores.dtype == torch.float32
        torch.testing.assert_close(scores.exp().sum(1), torch.ones(len(scores)))


def test_what_generate_cannot_do_with_it_is_refused(
    checkpoint: Path, store: Datastore, model: Any, sources: list[list[int]]
) -> None:
    from transformers import TemperatureLogitsWarper

    ids = torch.tensor(sources[:1])
    options = {"attention_mask": torch.ones_like(ids), "num_beams": 1}
    with torch.no_grad():
        encoded = model.get_encoder()(ids, attention_mask=options["attention_mask"])
    with KNNLogitsProcessor(model, store, profile=FIXED) as knn:
        with pytest.raises(SettingError, match="without the model's encoder"):
            model.generate(encoder_outputs=encoded, **options, logits_processor=[knn])
        found = model.generate(ids, **options, logits_processor=[knn])
        with pytest.raises(SettingError, match="without the model's encoder"):
            model.generate(encoder_outputs=encoded, **options, logits_processor=[knn])
        with pytest.raises(SettingError, match=r"one pass of the model for each step.* saw 0 .*assisted"):
            model.generate(ids, **options, logits_processor=[knn], assistant_model=load_transformers(checkpoint))
        with pytest.raises(SettingError, match="first in logits_processor"):
            model.generate(ids, **options, logits_processor=[TemperatureLogitsWarper(0.5), knn])
        with (
            KNNLogitsProcessor(model, store, profile=FIXED) as second,
            pytest.raises(SettingError, match="use only one"),
        ):
            model.generate(ids, **options, logits_processor=[knn, second])
        assert model.generate(ids, **options, logits_processor=[knn]).tolist() == found.tolist()
    with pytest.raises(SettingError, match="was removed from its model"):
        model.generate(ids, **options, logits_processor=[knn])
    with pytest.raises(SettingError, match="there is no setting 'lambda_'"):
        KNNLogitsProcessor(model, store, lambda_=0.3)  # type: ignore[call-arg]


def compare_with_ours(sentences: list[str], store: Path, beam: int, batch: int) -> tuple[int, list[float]]:
    """How many of the shipped model's translations are the same, and the gaps between the scores of the others."""
    from transformers import AutoModelForSeq2SeqLM

    translator = Translator(device="cpu", datastore=store, settings="raw")
    model = AutoModelForSeq2SeqLM.from_pretrained(MODELS_DIRECTORY / "de-en", dtype=torch.float32).eval()
    same, gaps = 0, []
    with KNNLogitsProcessor(model, store) as knn:
        for i in range(0, len(sentences), batch):
            group = sentences[i : i + batch]
            sources = translator.engine.tokenizer.encode_sources(group)
            theirs = generate(model, sources, beam, 1, logits_processor=[knn])
            for (mine,), (other,) in zip(translated(translator, group, beam=beam), theirs, strict=True):
                same += mine.tokens == other.tokens
                gaps += [abs(mine.score - other.score)] if mine.tokens != other.tokens else []
    return same, gaps


def test_the_example_of_the_docs_says_what_the_translator_says(
    engine: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = (ROOT / "docs" / "transformers.md").read_text(encoding="utf-8")
    example = docs.partition("```python\n")[2].partition("```")[0]
    memory = [SegmentPair("Die Anzeige blinkt rot.", "The glimmer pulses crimson.", "own#1"), *german_memory(3)]
    prepare(Datastore.build(tmp_path / "projekt.store", memory, engine), engine)
    shutil.copytree(MODELS_DIRECTORY / "de-en", tmp_path / "models" / "de-en")
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    (expected,) = Translator(device="cpu", datastore="projekt.store", settings="raw").translate(
        ["Die Anzeige blinkt rot."]
    )
    assert capsys.readouterr().out.startswith(f"[{expected.text!r}]\nsearches")
    assert "glimmer" in expected.text


@pytest.mark.soak
def test_real_text_translates_with_a_store_as_our_own_decoding_does(
    engine: TransformerEngine, domain_data: Path, tmp_path: Path
) -> None:
    with lzma.open(domain_data / "it" / "train.tsv.xz", "rt", encoding="utf-8") as lines:
        texts = [line.rstrip("\n").split("\t") for line in islice(lines, 3000)]
    pairs = [SegmentPair(source, target, f"it#{n}") for n, (source, target, *_) in enumerate(texts)]
    prepare(Datastore.build(tmp_path / "s", pairs, engine), engine)
    same, gaps = compare_with_ours(domain_lines(domain_data, "it", 100), tmp_path / "s", beam=5, batch=8)
    print(f"{same} of 100 the same; score gaps of the others: {gaps}")
    assert same >= 98
    assert all(gap < TIE for gap in gaps)
