"""Small random checkpoints of every family, and what `transformers` makes of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from support.checkpoints import edit_json
from support.german import german_sentences

START, PAD, END, UNKNOWN = 0, 1, 2, 3
LETTERS = [*map(chr, range(32, 127)), *"äöüßÄÖÜ"]
VOCABULARY = 128  # four special tokens, the letters, and room for language codes

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 40,
    "pad_token_id": PAD,
    "bos_token_id": START,
    "eos_token_id": END,
    "decoder_start_token_id": END,
    "forced_eos_token_id": END,
    "init_std": 0.3,
}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": PAD,
    "eos_token_id": END,
    "decoder_start_token_id": PAD,
    "initializer_factor": 1.0,
}

# Prefix of the names of classes in transformers, and what the config says beside the sizes.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "fsmt": ("FSMT", {"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY}),
    "fsmt, two vocabularies": ("FSMT", {"src_vocab_size": 110, "tgt_vocab_size": 119, "scale_embedding": False}),
    "fsmt, tied": ("FSMT", {"src_vocab_size": 110, "tgt_vocab_size": 110, "tie_word_embeddings": True}),
    "bart": ("Bart", {"scale_embedding": True}),
    "bart, untied": ("Bart", {"tie_word_embeddings": False, "activation_function": "relu"}),
    "mbart": ("MBart", {}),
    "m2m100": ("M2M100", {"scale_embedding": True}),
    "m2m100, odd width": ("M2M100", {"d_model": 33, "encoder_attention_heads": 3, "decoder_attention_heads": 3}),
    "m2m100, untied": ("M2M100", {"tie_word_embeddings": False}),
    "pegasus": ("Pegasus", {}),
    # More than a block of inputs, and no size in whole vectors.
    "mbart, larger": (
        "MBart",
        {
            "d_model": 516,
            "decoder_attention_heads": 6,
            "decoder_ffn_dim": 1100,
            "vocab_size": 3001,
            "init_std": 0.05,
            "decoder_layers": 3,
        },
    ),
    # Through transformers' own forward pass.
    "t5": ("T5", {}),
    "t5, untied": ("T5", {"tie_word_embeddings": False, "feed_forward_proj": "gated-gelu"}),
    "blenderbot": ("BlenderbotSmall", {}),
}


def make_family(directory: Path, family: str, generation: dict[str, Any] | None = None, **overrides: Any) -> Path:
    """Write a random checkpoint of one of FAMILIES; every weight differs from what a fresh layer has."""
    made = Path(_PLACE.name, hashlib.sha256(repr((family, sorted(overrides.items()))).encode()).hexdigest())
    if not made.exists():
        _write_family(made, family, **overrides)
    shutil.copytree(made, directory, dirs_exist_ok=True)
    edit_json(directory / "generation_config.json", **(generation or {}))
    return directory


_PLACE = tempfile.TemporaryDirectory()  # of checkpoints that were made already


def _write_family(directory: Path, family: str, **overrides: Any) -> None:
    import transformers

    prefix, settings = FAMILIES[family]
    config_class = getattr(transformers, f"{prefix}Config")
    model_class = getattr(transformers, f"{prefix}ForConditionalGeneration")
    sizes = _T5 if prefix in ("T5", "MT5") else _SIZES
    torch.manual_seed(5)
    model = model_class(config_class(**{**sizes, **settings, **overrides})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            if prefix == "FSMT" and "embed_positions" not in name and parameter.ndim > 1:
                parameter.normal_(std=_SIZES["init_std"])  # its own class leaves most at a scale of its own
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.3)
        _let_hypotheses_end(model)
    model.save_pretrained(directory)
    path = directory / "generation_config.json"
    if not path.exists():
        path.write_text("{}")
    edit_json(path, num_beams=5, max_length=24, min_length=5, bad_words_ids=[[PAD]])
    write_tokenizer(directory)


def _let_hypotheses_end(model: Any) -> None:
    """Lean the decoder's last normalisation towards the end token, which random models would hardly ever choose."""
    decoder = model.get_decoder()
    last = decoder.layers[-1].final_layer_norm if hasattr(decoder, "layers") else decoder.final_layer_norm
    norm = getattr(decoder, "layer_norm", last)
    output = getattr(decoder, "output_projection", None) or model.get_output_embeddings()
    logits = reference_outputs(model, some_sources(20), some_sources(21)[1:]).logits.flatten(0, 1)
    lacking = (logits.amax(1) - logits[:, END]).mean()
    direction = output.weight[END]
    if not hasattr(norm, "bias"):  # T5's norm only scales
        output.weight[END] *= 4
        return
    norm.bias.add_(direction * 1.3 * lacking / direction.square().sum())


def write_tokenizer(directory: Path, codes: Sequence[str] = ()) -> None:
    """A tokenizer.json in which every letter is a token; language codes come after the letters."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    names = ["<s>", "<pad>", "</s>", "<unk>", *LETTERS]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", *(AddedToken(code) for code in codes)])
    tokenizer.save(str(directory / "tokenizer.json"))


def write_opus_tokenizer(directory: Path, codes: Sequence[str] = ()) -> int:
    """The tokenizer of an OPUS-MT checkpoint, of our own sentences: two models, one vocabulary. Returns its size."""
    import sentencepiece

    vocabulary = {"</s>": 0, "<unk>": 1} | {code: 2 + i for i, code in enumerate(codes)}
    texts = german_sentences(200)
    for side, lines in (("source", texts), ("target", [text.upper() for text in texts])):
        prefix = directory / side
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=str(prefix), vocab_size=120, minloglevel=2
        )
        prefix.with_suffix(".model").rename(prefix.with_suffix(".spm"))
        for line in prefix.with_suffix(".vocab").read_text(encoding="utf-8").splitlines():
            vocabulary.setdefault(line.split("\t")[0], len(vocabulary))
    vocabulary["<pad>"] = len(vocabulary)
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    settings = {"tokenizer_class": "MarianTokenizer", "source_lang": "de", "target_lang": "en"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return len(vocabulary)


def some_sources(count: int, highest: int = 105, longest: int = 12) -> list[list[int]]:
    """Random token ids of different lengths, each ending in the end token."""
    generator = torch.Generator().manual_seed(8)
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    return [[*torch.randint(4, highest, (n,), generator=generator).tolist(), END] for n in lengths]


def load_reference(directory: Path) -> Any:
    """The checkpoint in `transformers`."""
    from transformers import AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    ).eval()


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def reference_outputs(model: Any, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Any:
    """What `transformers` computes in one pass over given targets."""
    source, target = padded(sources), padded(targets)
    start = model.config.decoder_start_token_id
    shifted = torch.cat([torch.full((len(targets), 1), start), target[:, :-1]], dim=1)
    with torch.no_grad():
        return model(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            decoder_input_ids=shifted,
            output_attentions=True,
            use_cache=False,
        )


def reference_beams(
    model: Any, sources: Sequence[Sequence[int]], **options: Any
) -> list[tuple[tuple[int, ...], float]]:
    """The best hypothesis of `transformers`' own search with five beams, and its score, for each source."""
    source = padded(sources)
    out = model.generate(
        input_ids=source,
        attention_mask=(source != PAD).long(),
        num_beams=5,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    found = []
    for row, score in zip(out.sequences.tolist(), out.sequences_scores.tolist(), strict=True):
        tokens = row[1:]
        tokens = tokens[: tokens.index(END) + 1] if END in tokens else tokens
        found.append((tuple(tokens), score))
    return found
