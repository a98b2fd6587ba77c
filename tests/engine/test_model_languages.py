"""A model for many languages is told which, in the way of its family, and a store keeps to them."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore
from knnmt.decoding.graph_buffers import FreeBuffers
from knnmt.decoding.search import search
from knnmt.engine.forced import force
from knnmt.engine.language_codes import Languages
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreMismatchError, IgnoredSettingWarning, NoTranslationWarning, SettingError
from knnmt.translator.memories import Request
from knnmt.translator.translator import Translator
from support.checkpoints import edit_json
from support.devices import DEVICES
from support.family_checkpoints import (
    END,
    PAD,
    load_reference,
    make_family,
    padded,
    reference_beams,
    reference_outputs,
    write_tokenizer,
)
from support.german import german_memory, german_sentences
from support.loops import graph_search

TEXTS = german_sentences(6)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentencepiece model of our own sentences."""
    import sentencepiece

    prefix = tmp_path_factory.mktemp("pieces") / "own"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(german_sentences(200)), model_prefix=str(prefix), vocab_size=120, minloglevel=2
    )
    return prefix.with_suffix(".model")


def scored_pieces(pieces: Path) -> list[tuple[str, float]]:
    lines = pieces.with_suffix(".vocab").read_text(encoding="utf-8").splitlines()[3:]
    read = [(name, float(score)) for name, score in (line.split("\t") for line in lines)]
    return [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *read]


def m2m100_tokenizer(pieces: Path, directory: Path) -> Any:
    from transformers import M2M100Tokenizer

    vocabulary = {name: i for i, (name, _) in enumerate(scored_pieces(pieces))}
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    shutil.copy(pieces, directory / "sentencepiece.bpe.model")
    tokenizer = M2M100Tokenizer(str(directory / "vocab.json"), str(pieces), src_lang="de")
    tokenizer.tgt_lang = "en"
    return tokenizer


def nllb_tokenizer(pieces: Path, _: Path) -> Any:
    from transformers import NllbTokenizer

    vocabulary = {name: i for i, (name, _) in enumerate(scored_pieces(pieces))}
    return NllbTokenizer(vocabulary, [], src_lang="deu_Latn", tgt_lang="eng_Latn")


def mbart_tokenizer(pieces: Path, _: Path) -> Any:
    from transformers import MBartTokenizer

    return MBartTokenizer(scored_pieces(pieces), src_lang="de_DE", tgt_lang="en_XX")


def mbart50_tokenizer(pieces: Path, _: Path) -> Any:
    from transformers import MBart50Tokenizer

    vocabulary = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *scored_pieces(pieces)[4:]]
    return MBart50Tokenizer(vocabulary, src_lang="de_DE", tgt_lang="en_XX")


MULTILINGUAL = {
    "m2m100": ("m2m100", m2m100_tokenizer, "__en__"),
    "nllb": ("m2m100", nllb_tokenizer, "eng_Latn"),
    "mbart": ("mbart", mbart_tokenizer, "en_XX"),
    "mbart-50": ("mbart", mbart50_tokenizer, "en_XX"),
}


@pytest.fixture(scope="module", params=list(MULTILINGUAL))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, pieces: Path) -> Any:
    """A random model of a family with its real tokenizer, trained here; and that tokenizer as `transformers` has it."""
    family, make_tokenizer, _ = MULTILINGUAL[request.param]
    directory = make_family(tmp_path_factory.mktemp("many"), family, vocab_size=400)
    (directory / "tokenizer.json").unlink()
    tokenizer = make_tokenizer(pieces, directory)
    tokenizer.save_pretrained(directory)
    edit_json(directory / "tokenizer_config.json", src_lang=None, tgt_lang=None)
    if request.param == "mbart":  # as it was published: the start is to be told
        for file in ("config.json", "generation_config.json"):
            edit_json(directory / file, decoder_start_token_id=None)
    return directory, tokenizer, request.param


@pytest.mark.parametrize("device", DEVICES)
def test_one_engine_serves_other_languages_with_the_same_weights(checkpoint: Any, device: str) -> None:
    directory, _, name = checkpoint

    def loaded(source: str, target: str) -> TransformerEngine:
        engine = load_engine(directory, device=device, dtype="float32", source_lang=source, target_lang=target)
        assert isinstance(engine, TransformerEngine)
        return engine

    first = loaded("de", "en")
    for source, target in (("de", "en"), ("en", "de"), ("de", "fr")):
        other, expected = first.for_languages(source, target), loaded(source, target)
        assert (other.languages, other.special_tokens) == (expected.languages, expected.special_tokens)
        assert (other.generation, other.max_positions) == (expected.generation, expected.max_positions)
        assert other.fingerprint is first.fingerprint
        assert other._decoder is first._decoder
        encoded = other.tokenizer.encode_sources(TEXTS)
        assert encoded == expected.tokenizer.encode_sources(TEXTS)
        sources = [source[-12:] for source in encoded]
        # Recorded steps are kept with the weights, and those of other languages must not be replayed.
        for loop, times in ((search, 1), (graph_search, 1 if device == "cpu" else 4)):  # a CPU replays nothing
            for _ in range(times):
                found, wanted = (loop(each, sources, replace(each.generation, beam=3)) for each in (other, expected))
                assert [best[0].tokens for best in found] == [best[0].tokens for best in wanted]
        assert other.get_or_make(FreeBuffers) is first.get_or_make(FreeBuffers)
    assert first.languages.target == MULTILINGUAL[name][2].strip("_")  # it stays as it was
    with pytest.raises(SettingError, match="target-lang"):
        first.for_languages("de", None)


def test_texts_are_encoded_as_transformers_does(checkpoint: Any) -> None:
    directory, tokenizer, name = checkpoint
    ours = load_engine(directory, device="cpu", source_lang="de", target_lang="en").tokenizer
    assert ours.encode_sources([]) == []
    assert ours.encode_sources(TEXTS) == tokenizer(TEXTS)["input_ids"]
    expected = tokenizer(text_target=TEXTS)["input_ids"]
    # The code is told, not predicted; that of mBART comes after the end.
    text_ids = [ids[:-1] if name == "mbart" else ids[1:] for ids in expected]
    assert ours.encode_targets(TEXTS) == text_ids
    assert [ours.decode(ids if name != "mbart" else ids[:-1]) for ids in expected] == TEXTS
    assert ours.piece(expected[0][1]) == tokenizer.convert_ids_to_tokens(expected[0][1])


def test_decoding_is_told_the_target_language(checkpoint: Any) -> None:
    directory, tokenizer, name = checkpoint
    engine = load_engine(directory, device="cpu", source_lang="de", target_lang="en")
    code = tokenizer.convert_tokens_to_ids(MULTILINGUAL[name][2])
    option = "decoder_start_token_id" if name == "mbart" else "forced_bos_token_id"
    sources = engine.tokenizer.encode_sources(TEXTS)
    sources = [source[-12:] for source in sources]
    expected = reference_beams(load_reference(directory), sources, **{option: code})
    found = [each[0] for each in search(engine, sources, replace(engine.generation, beam=5))]
    assert [each.tokens for each in found] == [tokens for tokens, _ in expected]
    assert [each.score for each in found] == pytest.approx([score for _, score in expected], abs=1e-4)


def test_a_forced_pass_begins_with_the_target_language(checkpoint: Any) -> None:
    directory, tokenizer, name = checkpoint
    engine = load_engine(directory, device="cpu", source_lang="de", target_lang="en")
    code = tokenizer.convert_tokens_to_ids(MULTILINGUAL[name][2])
    sources = [[5, 9, 14, END], [7, END]]
    targets = [[8, 21, END], [6, 30, 11, END]]
    block = force(engine, sources, targets, cross_attention=True)
    theirs = load_reference(directory)
    told = [[code, *target] for target in targets] if name != "mbart" else targets
    theirs.config.decoder_start_token_id = code if name == "mbart" else END
    expected = reference_outputs(theirs, sources, told)
    skipped = len(told[0]) - len(targets[0])
    real = padded(targets) != PAD
    torch.testing.assert_close(
        engine.log_probabilities(block.representations),
        expected.logits[:, skipped:][real].log_softmax(-1),
        atol=1e-4,
        rtol=0,
    )
    assert block.targets.tolist() == [token for target in targets for token in target]
    assert block.cross_attention is not None
    last = expected.cross_attentions[-1].mean(1)[:, skipped:]
    torch.testing.assert_close(block.cross_attention[1, :4, :2], last[1, :4, :2], atol=1e-4, rtol=0)
    assert engine.max_positions == 40 - skipped
    assert engine.generation.max_tokens < engine.max_positions


def test_languages_are_checked_against_the_tokenizer(checkpoint: Any) -> None:
    directory, _, _ = checkpoint
    with pytest.raises(SettingError, match=r"needs to know which to use: give --target-lang"):
        load_engine(directory, device="cpu")
    with pytest.raises(SettingError, match=r"needs to know which to use: give --source-lang"):
        load_engine(directory, device="cpu", target_lang="en")
    with pytest.raises(
        SettingError, match=r"--source-lang 'dee' is none of the model's \d+ languages. Close to it: .*de"
    ):
        load_engine(directory, device="cpu", source_lang="dee", target_lang="en")


def test_languages_that_a_tuned_checkpoint_states_need_not_be_given(checkpoint: Any, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(checkpoint[0], tmp_path / "tuned"))
    codes = load_engine(directory, device="cpu", source_lang="de", target_lang="en").languages
    edit_json(directory / "tokenizer_config.json", src_lang=codes.source, tgt_lang=codes.target)
    assert load_engine(directory, device="cpu").languages == codes


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random NLLB whose tokens are letters, with four languages."""
    directory = make_family(tmp_path_factory.mktemp("letters"), "m2m100", max_position_embeddings=120)
    write_tokenizer(directory, ["deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"])
    return directory


def test_a_store_is_built_and_searched_for_its_languages_only(many: Path, tmp_path: Path) -> None:
    engine = load_engine(many, device="cpu", source_lang="de", target_lang="en")
    assert engine.languages == Languages("deu_Latn", "eng_Latn", ("deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"))
    memory = german_memory(12)
    assert engine.tokenizer.encode_targets(["a"]) == [[69, END]]  # no entry for what is told
    store = Datastore.build(tmp_path / "store", memory, engine)
    assert (store.manifest.source_language, store.manifest.target_language) == ("deu_Latn", "eng_Latn")
    translator = Translator(
        many, device="cpu", datastore=tmp_path / "store", k=1, interpolation_weight=0.99, settings="raw"
    )
    assert translator.signature().startswith(f"model:{many.name}|langs:deu_Latn-eng_Latn|dtype:")
    for pair in memory[:3]:
        assert translator.translate(pair.source, max_tokens=118).text == pair.target
    with pytest.raises(DatastoreMismatchError, match=r"built for deu_Latn to eng_Latn; .* loaded for deu_Latn to fra_"):
        Translator(many, device="cpu", datastore=tmp_path / "store", target_lang="fr", settings="raw")
    one_side = Translator(many, device="cpu", datastore=tmp_path / "store", source_lang="de", settings="raw")
    assert one_side.engine.languages == engine.languages
    french = load_engine(many, device="cpu", source_lang="de", target_lang="fr")
    with pytest.raises(DatastoreMismatchError, match="Load it for the store's languages"):
        store.add(memory, french)


def test_a_tokenizer_without_the_codes_that_its_model_needs_is_noticed(tmp_path: Path) -> None:
    directory = make_family(tmp_path, "m2m100")
    assert load_engine(directory, device="cpu").languages == Languages()
    with pytest.warns(IgnoredSettingWarning, match="'en' tells the model nothing: it is a m2m_100, but its tokenizer"):
        load_engine(directory, device="cpu", source_lang="de", target_lang="en")


@pytest.mark.parametrize(("source", "target"), [("fr", "en"), ("de", "deu")])
def test_a_model_of_two_languages_refuses_others(source: str, target: str) -> None:
    with pytest.raises(SettingError, match=r"the model translates de to en\. Choose another"):
        load_engine("de-en", device="cpu", source_lang=source, target_lang=target)
    assert load_engine("de-en", device="cpu", source_lang="de-AT", target_lang="eng").languages == Languages("de", "en")
    with pytest.raises(SettingError, match=r"the model translates de to en\. Choose another"):
        load_engine("de-en", device="cpu").for_languages(source, target)


@pytest.mark.parametrize(("family", "form", "stated"), [("t5", "<2{}>", None), ("marian", ">>{}<<", "ROMANCE")])
def test_a_tag_on_the_source_names_the_target(
    family: str, form: str, stated: str | None, tmp_path: Path, make_checkpoint: Any
) -> None:
    """MADLAD and the OPUS-MT models with several targets."""
    if family == "marian":
        directory = Path(shutil.copytree(make_checkpoint(eos_token_id=END), tmp_path / "model"))
        edit_json(directory / "generation_config.json", eos_token_id=END)
    else:
        directory = make_family(tmp_path, family)
    write_tokenizer(directory, [form.format("fra"), form.format("ita")])
    (directory / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": stated}))
    engine = load_engine(directory, device="cpu", target_lang="fr")
    (ids,) = engine.tokenizer.encode_sources(["ab"])
    assert [engine.tokenizer.piece(token) for token in ids] == [form.format("fra"), "a", "b", "</s>"]
    assert engine.tokenizer.encode_targets(["ab"]) == [ids[1:]]
    assert engine.languages == Languages("en", "fra", ("fra", "ita"))
    other = engine.for_languages("en", "it")
    assert other.tokenizer.encode_sources(["ab"])[0][1:] == ids[1:] != other.tokenizer.encode_sources(["ab"])[0]
    assert other.languages.target == "ita"
    with pytest.raises(SettingError, match="needs to know which to use: give --target-lang"):
        load_engine(directory, device="cpu")
    with pytest.raises(SettingError, match="--source-lang 'de': the model translates en to"):
        load_engine(directory, device="cpu", source_lang="de", target_lang="fr")


@pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
def test_one_model_translates_between_several_languages(checkpoint: Any, tmp_path: Path) -> None:
    directory, _, _ = checkpoint
    texts = ["Satz", "Haus"]
    settings: dict[str, Any] = {"max_tokens": 9, "beam": 2}
    first = Translator(directory, device="cpu", source_lang="de", target_lang="en", k=3, settings="raw")
    pairs = [SegmentPair(f"Tag {number}", f"day {number}", "own") for number in range(5)]
    store = Datastore.build(tmp_path / "s", pairs, first.engine)
    before = first.translate(texts, datastore=store, **settings)
    other = first.for_languages("en", "de")
    expected = Translator(directory, device="cpu", source_lang="en", target_lang="de", settings="raw")
    assert [each.text for each in other.translate(texts, **settings)] == [
        each.text for each in expected.translate(texts, **settings)
    ]
    assert other.settings == first.settings
    assert pickle.loads(pickle.dumps(other)).engine.languages == expected.engine.languages
    with pytest.raises(DatastoreMismatchError, match="to"):
        other.translate(texts, datastore=store)
    other.close()
    assert first.translate(texts, datastore=store, **settings) == before

    back = expected.translate(texts, **settings)
    asked = [
        Request("Satz"),
        Request("Satz", source_lang="en", target_lang="de"),
        Request("Haus", store, source_lang="de"),
        Request("Haus", None, source_lang="en", target_lang="de"),
    ]
    plain = first.translate("Satz", **settings)
    for found, alone in zip(first.translate(asked, **settings), [plain, back[0], before[1], back[1]], strict=True):
        assert (found.source, found.tokens) == (alone.source, alone.tokens)
        assert found.score == pytest.approx(alone.score, abs=1e-4)
    assert first.translate(asked[1], **settings) == expected.translate("Satz", **settings) != plain

    of_other = Datastore.build(tmp_path / "other", pairs, expected.engine)
    alone = expected.translate("Tag 3", datastore=of_other, k=3, **settings)
    mine = Request("Tag 3", of_other, source_lang="en", target_lang="de")
    assert first.translate(mine, **settings) == alone != first.translate(replace(mine, datastore=None), **settings)


@pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
def test_a_request_in_languages_that_cannot_be_has_an_error_of_its_own(checkpoint: Any, tmp_path: Path) -> None:
    directory, _, _ = checkpoint
    translator = Translator(directory, device="cpu", source_lang="de", target_lang="en", settings="raw")
    store = Datastore.build(tmp_path / "s", [SegmentPair("Tag", "day", "own")], translator.engine)
    bad = [
        (Request("Satz", target_lang="xx"), "--target-lang 'xx' is none of the model's"),
        (Request("Satz", store, source_lang="en", target_lang="de"), "built for .* to .*use another store"),
    ]
    asked = [Request("Satz"), *(request for request, _ in bad), Request("Satz")]
    with pytest.warns(NoTranslationWarning):
        first, *failed, last = translator.translate(asked, max_tokens=5, on_error="continue")
    assert first == last
    assert first.error is None
    for (request, message), found in zip(bad, failed, strict=True):
        assert re.search(message, found.error or "")
        with pytest.raises((SettingError, DatastoreMismatchError), match=message):
            translator.translate(request)
    ready = translator.retrieval(datastore=store, interpolation_weight=0.5, temperature=10.0)
    with pytest.raises(SettingError, match="a request cannot give source_lang, because its call has a retrieval"):
        translator.translate([Request("Satz", source_lang="de")], retrieval=ready)
    with pytest.raises(SettingError, match="expected a language tag such as de, got 5"):
        Request("Satz", source_lang=5)  # type: ignore[arg-type]
