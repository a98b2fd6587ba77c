"""Any other `AutoModelForSeq2SeqLM` (T5, MADLAD, ...) behind the engine protocol, run by `transformers`.

It is slower than our transformer, because every beam has a copy of everything, but decoding and datastores use it in
the same way. The output projection is removed from the model, so that a forward pass returns the representation, which
is the projection's input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from knnmt import timing
from knnmt.engine.base import EncodedSources, Fingerprint
from knnmt.engine.foreign_code import explain_refusal, require_no_custom_search
from knnmt.engine.languages import ConfigureLanguages, LanguageSetup
from knnmt.engine.layers import AnyProjection, projection
from knnmt.engine.rows import Rows
from knnmt.errors import CheckpointError, KnnmtError, MissingDependencyError, SettingError, UnsupportedModelError


class GenericState:
    """A cache of `transformers` with one row for every beam; see `knnmt.engine.base.DecoderState` for the contract.

    source, source_mask: (sentences * width, source, dim) and (sentences * width, source)
    """

    def __init__(self, source: Tensor, source_mask: Tensor) -> None:
        from transformers import DynamicCache, EncoderDecoderCache

        self.sentences, self.width = source.shape[0], 1
        self.source = source
        self.source_mask = source_mask
        self.cache: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())

    @torch.inference_mode()
    def widen(self, width: int) -> None:
        self.source = self.source.repeat_interleave(width, dim=0)
        self.source_mask = self.source_mask.repeat_interleave(width, dim=0)
        self.cache.batch_repeat_interleave(width)
        self.width = width

    @torch.inference_mode()
    def reorder(self, parents: Tensor) -> None:
        first = torch.arange(self.sentences, device=parents.device)[:, None] * self.width
        self.cache.self_attention_cache.reorder_cache((first + parents).flatten())  # beams of a sentence share a source

    @torch.inference_mode()
    def keep(self, sentences: Sequence[int]) -> None:
        kept = torch.tensor(sentences, device=self.source.device)
        rows = (kept[:, None] * self.width + torch.arange(self.width, device=kept.device)).flatten()
        self.source, self.source_mask = self.source[rows], self.source_mask[rows]
        self.cache.batch_select_indices(rows)
        self.sentences = len(sentences)

    def compact(self) -> None:
        """There is nothing to free: the cache holds only tokens that its rows see."""


class GenericEngine:
    """A checkpoint that `transformers` runs; see `knnmt.engine.base.Engine` for the contract."""

    def __init__(
        self,
        name: str,
        model: Any,
        max_positions: int,
        setup: LanguageSetup,
        configure: ConfigureLanguages,
        fingerprint: Callable[[], Fingerprint],
    ) -> None:
        self.name = name
        self._positions = max_positions
        self._configure = configure
        self._use(setup)
        self._read_fingerprint = fingerprint
        self._model = model
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.computes_in = str(self.dtype).removeprefix("torch.")
        with torch.inference_mode():
            try:
                special = self.special_tokens
                source, target = [[special.end] * 2], torch.tensor([[special.decoder_start, special.end]])
                expected = self._whole(source, target)
                weight, bias = _take_output_projection(model)
                self._output: AnyProjection = projection(weight, bias, of_steps=True)
                self.vocabulary_size, self.dim = weight.shape
                setup.require_tokens(name, self.vocabulary_size)
                self._require_same(expected, source, target.to(self.device))
            except KnnmtError:
                raise
            except Exception as error:  # a model that does not accept this input may raise anything
                raise UnsupportedModelError(
                    f"{name}: a model of type {model.config.model_type!r} that does not run as text to text: {error}"
                ) from error

    def _use(self, setup: LanguageSetup) -> None:
        self.languages = setup.languages
        self.tokenizer = setup.tokenizer
        self.special_tokens = setup.special_tokens
        self.generation = setup.generation
        self.max_positions = setup.text_positions(self._positions)

    def for_languages(self, source: str | None, target: str | None) -> Self:
        """The same weights, set to other languages."""
        setup = self._configure(source, target)
        setup.require_tokens(self.name, self.vocabulary_size)
        other = copy(self)
        other._use(setup)
        return other

    def _whole(self, source: list[list[int]], target: Tensor) -> Tensor:
        """Log-probabilities from one pass through the whole model."""
        out = self._model(
            input_ids=torch.tensor(source, device=self.device),
            decoder_input_ids=target.to(self.device),
            use_cache=False,
        )
        return torch.log_softmax(out.logits.float(), dim=-1)

    def _require_same(self, expected: Tensor, source: list[list[int]], target: Tensor) -> None:
        """Refuse an unknown kind of model: decoding step by step from representations must give the same result."""
        if not bool(expected.isfinite().all()):
            raise SettingError(
                f"{self.name}: its results in {self.dtype} are not numbers; use dtype 'bfloat16' or 'float32'"
            )
        state = self.start(self.encode(source))
        steps = [self.step(state, target[:, None, i : i + 1])[:, 0] for i in range(target.shape[1])]
        tolerance = 1e-2 if self.dtype == torch.float32 else 0.25  # half precision rounds logits by that much
        if steps[0].shape == (1, 1, self.dim):
            found = self.log_probabilities(torch.cat(steps, dim=1))
            if torch.allclose(found, expected, atol=tolerance):
                return
        raise UnsupportedModelError(
            f"{self.name}: a model of type {self._model.config.model_type!r} whose logits are more than a linear "
            "projection of its decoder's output; the memory's keys cannot be taken from it"
        )

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Computed at the first call."""
        return self._read_fingerprint()

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        with timing.stage("encoder"), torch.inference_mode():
            rows = Rows.of(sources)
            lengths = tuple(rows.lengths.tolist())
            tokens = torch.from_numpy(rows.padded(self.special_tokens.padding)).to(self.device)
            states = self._model.get_encoder()(input_ids=tokens, attention_mask=self._mask(lengths)).last_hidden_state
            return EncodedSources(states, lengths)

    def start(self, encoded: EncodedSources) -> GenericState:
        return GenericState(encoded.states, self._mask(encoded.lengths))

    def step(self, state: GenericState, tokens: Tensor, cross_attention: list[Tensor] | None = None) -> Tensor:
        with timing.stage("decoder"), torch.inference_mode():
            from transformers.modeling_outputs import BaseModelOutput

            sentences, width, m = tokens.shape
            encoded = BaseModelOutput(last_hidden_state=state.source)
            encoded.router_logits = None  # mixture-of-experts models read this attribute
            out = self._model(
                encoder_outputs=encoded,
                attention_mask=state.source_mask,
                decoder_input_ids=tokens.view(sentences * width, m),
                past_key_values=state.cache,
                use_cache=True,
                output_attentions=cross_attention is not None,
            )
            if cross_attention is not None:
                cross_attention[:] = [out.cross_attentions[-1].mean(1).view(sentences, width, m, -1)]
            found: Tensor = out.logits
            return found.view(sentences, width, m, -1)

    def log_probabilities(self, representations: Tensor) -> Tensor:
        with timing.stage("output"), torch.inference_mode():
            logits = self._output(representations.reshape(-1, self.dim)).float()
            return torch.log_softmax(logits, dim=-1).view(*representations.shape[:-1], -1)

    def _mask(self, lengths: Sequence[int]) -> Tensor:
        """(sentences, longest), 1 for a token, 0 for padding."""
        longest = torch.arange(max(lengths), device=self.device)
        return (longest < torch.tensor(lengths, device=self.device)[:, None]).long()


def _take_output_projection(model: Any) -> tuple[Tensor, Tensor | None]:
    """Remove the output projection from the model; return its weight (out, in) and the sum of all biases."""
    layer = model.get_output_embeddings()
    name = next((name for name, module in model.named_modules() if module is layer), None)
    if name is None or getattr(layer, "weight", None) is None:
        raise UnsupportedModelError(f"a model of type {model.config.model_type!r} has no output projection of its own")
    bias = getattr(layer, "bias", None)
    later = getattr(model, "final_logits_bias", None)
    if later is not None:
        bias = later.flatten() if bias is None else bias + later.flatten()
        model.final_logits_bias = torch.zeros((1, 1), device=later.device, dtype=later.dtype)
    model.set_submodule(name, nn.Identity())
    return layer.weight.detach(), None if bias is None else bias.detach()


def load_transformers_model(directory: Path, model_type: object, device: torch.device, dtype: torch.dtype) -> Any:
    """The checkpoint as `transformers` loads it, ready for inference. No code of the checkpoint is run."""
    try:
        from transformers import AutoModelForSeq2SeqLM
        from transformers.utils import logging
    except ImportError as error:
        raise MissingDependencyError(
            "transformers", f"{directory}, a model of type {model_type!r},", "transformers"
        ) from error
    require_no_custom_search(directory)
    with_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        # Only plain (eager) attention returns its weights.
        model = AutoModelForSeq2SeqLM.from_pretrained(
            str(directory),
            dtype=dtype,
            local_files_only=True,
            attn_implementation="eager",
            trust_remote_code=False,  # without it, transformers asks on standard input, which may hold the texts
        )
    except (ValueError, KeyError) as error:
        explain_refusal(directory, error)
        raise UnsupportedModelError(
            f"{directory}: config.json says model_type {model_type!r}, which the installed transformers does not "
            f"know as a sequence-to-sequence model: {error}"
        ) from error
    except Exception as error:  # broken files can raise almost any exception there
        raise CheckpointError(f"{directory}: transformers cannot load this checkpoint: {error}") from error
    finally:
        if with_bar:
            logging.enable_progress_bar()
    return model.to(device).eval()
