"""A model that `transformers` loaded: its output projection, and whether a store belongs to it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from knnmt.compression.pca import KeyProjection
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Fingerprint
from knnmt.engine.checkpoint import find_checkpoint, fingerprint
from knnmt.engine.language_codes import Languages
from knnmt.engine.tokenizer import Tokenizer
from knnmt.errors import DatastoreMismatchError, ModelNotFoundError, UnsupportedModelError


def output_projection(model: Any) -> nn.Module:
    """The module whose input is a datastore's key and whose output is the logits, except for a bias."""
    if not getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{type(model).__name__} is not an encoder-decoder of `transformers`; stores need models with a source "
            f"and a target. Load one with AutoModelForSeq2SeqLM.from_pretrained."
        )
    # FSMT's `get_output_embeddings` returns an embedding that no state ever passes through.
    found = getattr(model.get_decoder(), "output_projection", None) or model.get_output_embeddings()
    if not isinstance(found, nn.Module) or isinstance(found, nn.Embedding):
        raise UnsupportedModelError(
            f"{type(model).__name__}: expected an output projection (lm_head, or output_projection of its decoder), "
            f"found {type(found).__name__}. Load the model with its language-modelling head (AutoModelForSeq2SeqLM)."
        )
    return found


class LoadedModel:
    """The part of `knnmt.engine.base.Engine` that opening a store needs."""

    def __init__(self, model: Any, fingerprint: Fingerprint | None = None) -> None:
        """fingerprint: the model's assumed identity; by default it comes from its checkpoint's files"""
        self._model = model
        self._taken_for = fingerprint
        self._projection = output_projection(model)
        self.vocabulary_size, self.dim = self._weight.shape
        self.name = str(getattr(model, "name_or_path", "") or type(model).__name__)
        self.languages = Languages()  # only a call of `generate` knows them
        self.tokenizer: Tokenizer | None = None  # sources are not seen here either

    @property
    def _weight(self) -> Tensor:
        weight = self._projection.weight
        assert isinstance(weight, Tensor)  # noqa: S101 - a projection without a weight projects nothing
        return weight

    @property
    def device(self) -> torch.device:
        return self._weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self._weight.dtype

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the files that the weights came from."""
        if self._taken_for is not None:
            return self._taken_for
        place = str(getattr(self._model, "name_or_path", ""))
        way_out = "If these are the weights that the store was built with, give check_model=False."
        if not place:
            raise DatastoreMismatchError(
                f"the store belongs to a checkpoint, but this {self.name} was not loaded from one. {way_out}"
            )
        try:
            return fingerprint(find_checkpoint(Path(place) if Path(place).is_dir() else place))
        except ModelNotFoundError as error:
            raise DatastoreMismatchError(
                f"the store belongs to a checkpoint, but the checkpoint of this model is gone: {error} {way_out}"
            ) from error

    def log_probabilities(self, representations: Tensor) -> Tensor:
        """(rows, dim) -> (rows, vocabulary), float32."""
        logits = self._projection.forward(representations)  # not a call: hooks must not take these for decoder states
        bias = getattr(self._model, "final_logits_bias", None)
        return torch.log_softmax((logits if bias is None else logits + bias).float(), dim=-1)

    def require_shape_of(self, store: Datastore) -> None:
        """Refuse a store whose keys or values cannot be this model's, whatever files the model came from."""
        projection = KeyProjection.of(store)
        dim = store.manifest.dim if projection is None else len(projection.mean)
        vocabulary = store.manifest.vocabulary
        if (dim, vocabulary) != (self.dim, self.vocabulary_size):
            raise DatastoreMismatchError(
                f"{store.path}: made from decoder states of {dim} dimensions and {vocabulary} target tokens; the model "
                f"{self.name!r} has {self.dim} and {self.vocabulary_size}. Use the model it was built with "
                f"({store.manifest.model_name!r}), as it was then."
            )
