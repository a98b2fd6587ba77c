"""Hooks stand where keys come from, in every family, and go away again; a store of another model is refused."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from knnmt import KNNLogitsProcessor
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreMismatchError, UnsupportedModelError
from knnmt.huggingface.model import LoadedModel, output_projection
from knnmt.huggingface.watching import ModelWatch
from support.checkpoints import MakeCheckpoint
from support.datastore_pairs import some_pairs
from support.transformers_search import load_transformers

SIZES: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 32,
    "init_std": 0.5,
    "vocab_size": 60,
}
TOKENS: dict[str, Any] = {
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}


def marian() -> Any:
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(MarianConfig(**SIZES, **TOKENS))


def bart() -> Any:
    from transformers import BartConfig, BartForConditionalGeneration

    return BartForConditionalGeneration(BartConfig(**SIZES, **TOKENS))


def m2m100() -> Any:
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    return M2M100ForConditionalGeneration(M2M100Config(**SIZES, **TOKENS))


def fsmt() -> Any:
    from transformers import FSMTConfig, FSMTForConditionalGeneration

    sizes = {name: value for name, value in SIZES.items() if name != "vocab_size"}
    config = FSMTConfig(
        langs=["de", "en"], src_vocab_size=60, tgt_vocab_size=70, **sizes, **TOKENS, tie_word_embeddings=False
    )
    return FSMTForConditionalGeneration(config)


def t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 60}
    return T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0))


@pytest.mark.parametrize("make", [marian, bart, m2m100, fsmt, t5])
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("use_cache", [True, False])
def test_the_hooked_states_times_the_projection_are_the_logits(
    make: Callable[[], Any], beam: int, use_cache: bool
) -> None:
    torch.manual_seed(3)
    model = make().eval()
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    watch = ModelWatch(model)
    weight: Any = output_projection(model).weight
    loaded = LoadedModel(model)
    lengths = []

    def compare(input_ids: Tensor, scores: Tensor) -> Tensor:
        step = watch.take(input_ids)
        lengths.append(input_ids.shape[1])
        assert (step.first, step.sentences) == (len(lengths) == 1, 2)
        bias = getattr(model, "final_logits_bias", 0)
        logits = step.states @ weight.T + bias
        torch.testing.assert_close(logits, step.logits)
        torch.testing.assert_close(loaded.log_probabilities(step.states), step.logits.log_softmax(-1))
        given = step.logits if beam == 1 else step.logits.log_softmax(-1)
        torch.testing.assert_close(scores, given, msg="our picture of what generate hands over is wrong")
        return scores

    sources = torch.tensor([[5, 6, 7, 2], [9, 8, 2, 1]])
    options = {"num_beams": beam, "use_cache": use_cache, "max_length": 6}
    for _ in range(2):
        lengths.clear()
        model.generate(sources, attention_mask=(sources != 1).long(), logits_processor=[compare], **options)
        assert lengths == list(range(1, len(lengths) + 1))
        assert len(lengths) > 1
    watch.remove()


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(8), tiny)


def hooks(model: Any) -> int:
    modules = list(model.modules())
    return sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in modules)


def test_hooks_go_with_the_block_the_call_and_the_processor(tiny_checkpoint: Path, store: Datastore) -> None:
    model = load_transformers(tiny_checkpoint)
    with KNNLogitsProcessor(model, store) as knn:
        assert hooks(model) == 3
    assert hooks(model) == 0
    knn.remove()
    knn = KNNLogitsProcessor(model, store)
    knn.remove()
    assert hooks(model) == 0
    knn = KNNLogitsProcessor(model, store)
    assert hooks(model) == 3
    del knn
    gc.collect()
    assert hooks(model) == 0


def test_training_is_not_held_in_memory(tiny_checkpoint: Path, store: Datastore) -> None:
    model = load_transformers(tiny_checkpoint)
    watch = ModelWatch(model)
    model(torch.tensor([[5, 0]]), decoder_input_ids=torch.tensor([[230, 4]])).logits.sum().backward()
    assert not watch._states
    assert not watch._logits


def test_a_store_of_another_model_is_refused(
    tiny_checkpoint: Path, make_checkpoint: MakeCheckpoint, store: Datastore, tmp_path: Path
) -> None:
    other = load_transformers(make_checkpoint(init_std=0.3))
    with pytest.raises(DatastoreMismatchError, match=r"built with the model .* differs"):
        KNNLogitsProcessor(other, store)
    KNNLogitsProcessor(other, store, check_model=False).remove()  # on the caller's word
    narrow = load_transformers(make_checkpoint(d_model=28))
    with pytest.raises(DatastoreMismatchError, match=r"32 dimensions and 231 target tokens; .* has 28 and 231"):
        KNNLogitsProcessor(narrow, store, check_model=False)
    model = load_transformers(tiny_checkpoint)
    model.resize_token_embeddings(240)
    with pytest.raises(DatastoreMismatchError, match=r"231 target tokens; .* has 32 and 240"):
        KNNLogitsProcessor(model, store)
    assert hooks(other) == hooks(narrow) == hooks(model) == 0


def test_a_model_without_a_checkpoint_is_taken_on_the_callers_word_only(
    tiny_checkpoint: Path, store: Datastore, tmp_path: Path
) -> None:
    from transformers import MarianMTModel

    loaded = load_transformers(tiny_checkpoint)
    made = MarianMTModel(loaded.config)
    made.load_state_dict(loaded.state_dict())
    made.name_or_path = ""
    with pytest.raises(DatastoreMismatchError, match=r"was not loaded from one.*check_model=False"):
        KNNLogitsProcessor(made, store)
    made.name_or_path = str(tmp_path / "gone")
    with pytest.raises(DatastoreMismatchError, match=r"is gone: .*no such directory.*check_model=False"):
        KNNLogitsProcessor(made, store)
    KNNLogitsProcessor(made, store, check_model=False).remove()


def test_models_that_are_no_translators_are_refused(store: Datastore) -> None:
    from transformers import BartConfig, BartModel, GPT2Config, GPT2LMHeadModel

    with pytest.raises(UnsupportedModelError, match="GPT2LMHeadModel is not an encoder-decoder"):
        KNNLogitsProcessor(GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20)), store)
    with pytest.raises(UnsupportedModelError, match="str is not an encoder-decoder"):
        KNNLogitsProcessor("models/de-en", store)
    with pytest.raises(UnsupportedModelError, match=r"BartModel: expected an output projection .*found NoneType"):
        KNNLogitsProcessor(BartModel(BartConfig(**SIZES, **TOKENS)), store)
