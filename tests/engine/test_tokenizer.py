from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from knnmt.engine.shipped import MODELS_DIRECTORY, shipped_models
from knnmt.engine.tokenizer import JsonTokenizer, TransformersTokenizer, load_tokenizer
from knnmt.errors import CheckpointError, MissingDependencyError
from support.family_checkpoints import write_opus_tokenizer
from support.german import german_memory, german_sentences

SHIPPED = [MODELS_DIRECTORY / name for name in shipped_models()]
ODD_TEXTS = ["", "   ", "Größe: {name} → %(count)d <b>fett</b>", "日本語 und 🙂", "Zeile\tmit  Lücken ", "1234567"]


@pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.name)
def test_a_shipped_tokenizer_agrees_with_transformers_and_loses_nothing(model: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(model)
    ours = load_tokenizer(model)
    assert isinstance(ours, JsonTokenizer)
    texts = [*(text for pair in german_memory(60) for text in (pair.source, pair.target)), *ODD_TEXTS]
    assert ours.encode_sources([]) == []
    encoded = ours.encode_sources(texts)
    assert encoded == theirs(texts)["input_ids"] == ours.encode_targets(texts)
    for text, ids in zip(texts, encoded, strict=True):
        assert ids[-1] == 0
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True) == " ".join(text.split())
        assert [ours.piece(token) for token in ids] == theirs.convert_ids_to_tokens(ids)
    assert ours.piece(99_999) == "<99999>"


def test_texts_that_count_as_the_same_have_the_same_ids(tiny_checkpoint: Path, sentencepiece_checkpoint: Path) -> None:
    for directory in (*SHIPPED, tiny_checkpoint, sentencepiece_checkpoint):
        tokenizer = load_tokenizer(directory)
        for encode in (tokenizer.encode_sources, tokenizer.encode_targets):
            first, *others = encode(["ä b", " ä  b\n", "ä\u00a0b", "a\u0308\tb", "ä\u2028b", "\u202fä\r\nb"])
            assert others == [first] * 5


@pytest.fixture(scope="module")
def sentencepiece_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of an OPUS-MT tokenizer, trained on our own sentences: two models, one vocabulary."""
    directory = tmp_path_factory.mktemp("opus")
    write_opus_tokenizer(directory)
    (directory / "config.json").write_text(json.dumps({"model_type": "marian"}))
    return directory


def test_sentencepiece_models_go_through_transformers(sentencepiece_checkpoint: Path) -> None:
    tokenizer = load_tokenizer(sentencepiece_checkpoint)
    assert isinstance(tokenizer, TransformersTokenizer)
    text = german_sentences(1)[0]
    source, target = tokenizer.encode_sources([text])[0], tokenizer.encode_targets([text.upper()])[0]
    assert source[-1] == target[-1] == 0
    assert source != target
    assert tokenizer.encode_sources([]) == tokenizer.encode_targets([]) == []
    assert tokenizer.decode(target) == text.upper()
    assert "".join(tokenizer.piece(token) for token in target[:-1]).replace("▁", " ").strip() == text.upper()


@pytest.fixture
def one_model(tmp_path: Path) -> Path:
    """A tokenizer that is nothing but a sentencepiece model, as mBART-50 and many a T5 were published."""
    import sentencepiece

    prefix = tmp_path / "sentencepiece.bpe"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(german_sentences(200)), model_prefix=str(prefix), vocab_size=120, minloglevel=2
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mbart"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MBart50Tokenizer"}))
    return tmp_path


def test_a_sentencepiece_model_is_all_that_a_tokenizer_needs(one_model: Path) -> None:
    pytest.importorskip("google.protobuf")
    from sentencepiece import SentencePieceProcessor

    tokenizer = load_tokenizer(one_model)
    assert isinstance(tokenizer, TransformersTokenizer)
    text = german_sentences(1)[0]
    (ids,) = tokenizer.encode_plain([text], target=False)
    pieces = SentencePieceProcessor(str(one_model / "sentencepiece.bpe.model")).encode(text, out_type=str)
    assert [tokenizer.piece(token) for token in ids] == pieces
    assert tokenizer.decode(ids) == text


def test_the_package_that_reads_sentencepiece_models_is_named(one_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("`tiktoken` is required to read a `tiktoken` file.")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", fail)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(MissingDependencyError, match=r"'protobuf'.*pip install 'knnmt\[transformers\]'"):
        load_tokenizer(one_model)


@pytest.fixture
def fsmt_checkpoint(tmp_path: Path) -> Path:
    """The files of an FSMT tokenizer: one list of merges, a vocabulary a side, of different order."""
    letters = "abcdefghijklmnopqrstuvwxyzäöüßABCDEFGHIJKLMNOPQRSTUVWXYZ.,&;#0123456789-"
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>"]
    source = {piece: i for i, piece in enumerate(pieces)}
    target = {piece: i for i, piece in enumerate([*pieces[:4], *reversed(pieces[4:])])}
    (tmp_path / "vocab-src.json").write_text(json.dumps(source))
    (tmp_path / "vocab-tgt.json").write_text(json.dumps(target))
    (tmp_path / "merges.txt").write_text("t h 10\nth e</w> 9\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "fsmt"}))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "FSMTTokenizer", "langs": ["fr", "en"]})
    )
    return tmp_path


def test_fsmt_reads_each_side_by_its_own_vocabulary_and_language(fsmt_checkpoint: Path) -> None:
    tokenizer = load_tokenizer(fsmt_checkpoint)
    text = "the path, it's 3 km."
    (source,), (target,) = tokenizer.encode_sources([text]), tokenizer.encode_targets([text])
    assert source[-1] == target[-1] == 2
    assert source != target
    assert tokenizer.piece(target[0]) == "the</w>"
    assert tokenizer.decode(target) == text
    pieces = list(json.loads((fsmt_checkpoint / "vocab-src.json").read_text()))
    assert pieces[source[0]] == "the</w>"
    # French keeps the apostrophe with what stands before it, English with what comes after.
    assert [pieces[token] for token in source] != [tokenizer.piece(token) for token in target]


def test_without_transformers_the_error_says_how_to_install_it(
    sentencepiece_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"no tokenizer\.json.*pip install 'knnmt\[transformers\]'"):
        load_tokenizer(sentencepiece_checkpoint)


def test_a_directory_without_any_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian"}))
    with pytest.raises(CheckpointError, match="its tokenizer cannot be loaded"):
        load_tokenizer(tmp_path)
