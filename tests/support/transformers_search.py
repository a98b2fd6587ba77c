"""Beam and greedy search of `transformers`, to compare with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from knnmt.decoding.hypothesis import Hypothesis

TIE = 1e-4
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "long": {"length_penalty": 2.0},
    "short": {"length_penalty": 0.0},
    "early": {"early_stopping": True},
    "never early": {"early_stopping": "never"},
    "cut": {"max_length": 6},
    "cut, no end forced": {"max_length": 6, "forced_eos_token_id": None},
    "first token": {"forced_bos_token_id": 77},
    "no padding, no 99": {"bad_words_ids": [[230], [99]]},
    "a bad phrase": {"bad_words_ids": [[12, 180], [6, 7, 8], [230]]},
    "suppressed": {"suppress_tokens": [1, 2, 3, 230]},
    "at least eight": {"min_length": 8},
    "new tokens": {"max_new_tokens": 5, "min_new_tokens": 3},
    "the end is no bad word": {"bad_words_ids": [[0], [99]]},
    "other special tokens": {"eos_token_id": 44, "decoder_start_token_id": 7, "forced_eos_token_id": 44},
}


def generate(
    model: Any, sources: Sequence[list[int]], beam: int, n_best: int, **options: Any
) -> list[list[Hypothesis]]:
    """`transformers`' own search, as hypotheses; greedy search gives no scores there."""
    pad, end = model.config.pad_token_id, model.generation_config.eos_token_id
    longest = max(map(len, sources))
    ids = torch.tensor([source + [pad] * (longest - len(source)) for source in sources])
    mask = torch.tensor([[1] * len(source) + [0] * (longest - len(source)) for source in sources])
    out = model.generate(
        input_ids=ids,
        attention_mask=mask,
        num_beams=beam,
        num_return_sequences=n_best,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    scores = out.sequences_scores.tolist() if beam > 1 else [math.nan] * len(sources)
    found = []
    for row, score in zip(out.sequences.tolist(), scores, strict=True):
        tokens = row[1:]
        tokens = tokens[: tokens.index(end) + 1] if end in tokens else tokens
        found.append(Hypothesis(tuple(tokens), score))
    return [found[i : i + n_best] for i in range(0, len(found), n_best)]


def load_transformers(directory: Path) -> Any:
    from transformers import MarianMTModel

    return MarianMTModel.from_pretrained(directory, dtype=torch.float32).eval()
