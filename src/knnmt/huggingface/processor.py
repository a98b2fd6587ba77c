"""`KNNLogitsProcessor`: equations 2 and 3 inside the `generate` of `transformers`.

`generate` gives a processor scores but no states. It gives logits in greedy search and sampling, but log-probabilities
in beam search, and its own processors (forbidden, forced and penalised tokens) come first. Our own decoding mixes first
and then constrains. So the mixture is made from the model's own output, which hooks record, and the changes that
earlier processors made to the model's scores are added to the mixture.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, Unpack, cast

import torch
from torch import Tensor

from knnmt.config import check
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Engine
from knnmt.errors import SettingError
from knnmt.huggingface.model import LoadedModel
from knnmt.huggingface.watching import ModelWatch, WatchedStep
from knnmt.retrieval.profiles import ESTIMATED
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.settings import RetrievalKeywords, RetrievalSettings
from knnmt.retrieval.statistics import Statistics
from knnmt.settings import settings_of
from knnmt.translator.memories import Memories, Store


class KNNLogitsProcessor:
    """A logits processor that mixes the model's distribution with that of a store's nearest entries.

        with KNNLogitsProcessor(model, "project.store") as knn:
            model.generate(**inputs, num_beams=5, logits_processor=[knn])

    model: an encoder-decoder that `transformers` loaded from the store's checkpoint, already on its device
    datastore: the store; each call of `generate` uses its newest generation
    exact: search every key, even if the store has an index
    check_model: False skips the comparison of the model's files with those that the store was built with; width and
        vocabulary are always compared
    settings: settings of retrieval, as a whole or as keywords, as for `Translator`

    Its hooks stay on the model until `remove`, the end of a `with` block, or the end of the processor itself.
    statistics: searches and cache hits of all steps, including sentences that have ended, because `generate` continues
    them
    """

    def __init__(
        self,
        model: Any,
        datastore: Store,
        *,
        exact: bool = False,
        check_model: bool = True,
        settings: RetrievalSettings | None = None,
        **keywords: Unpack[RetrievalKeywords],
    ) -> None:
        asked = settings_of(RetrievalSettings, settings, **keywords)
        store = datastore if isinstance(datastore, Datastore) else Datastore.open(datastore)
        self._loaded = LoadedModel(model, None if check_model else store.manifest.fingerprint)
        self._loaded.require_shape_of(store)
        self._device = self._loaded.device
        self._memories = Memories(cast("Engine[Any]", self._loaded), exact)
        self._datastore, self._settings = store.path, asked
        self._retrieval()  # shows errors in the settings at once
        self.statistics = Statistics()
        self._batch = BatchRetrieval([])
        self._given_logits: bool | None = None
        self._prompt = 0
        self._alike = True  # whether the rows of a sentence are still the same
        self._watch = ModelWatch(model)
        weakref.finalize(self, self._watch.remove)

    def remove(self) -> None:
        """Remove the hooks from the model. Can be called again."""
        self._watch.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """input_ids (rows, length); scores (rows, vocabulary); returns log-probabilities (rows, vocabulary)."""
        step = self._watch.take(input_ids)
        if step.first:
            self._begin(step.sentences, input_ids.shape[1])
        if bool((scores.isfinite().sum(1) == 1).all()):  # forced tokens: there is nothing to choose
            self._batch.skip()
            return scores
        log_probabilities = torch.log_softmax(step.logits, dim=-1)
        before = self._as_given(scores, step.logits.to(scores.device), log_probabilities.to(scores.device))
        mixture = self._mix(step, log_probabilities, input_ids[:, self._prompt :]).to(scores.device)
        self._alike = False
        return torch.where(before.isneginf(), scores, mixture + (scores - before))

    def _retrieval(self) -> Retrieval:
        retrieval = self._memories.retrieval(self._datastore, self._settings)
        asked = self._settings.given().keys() & {"search", "segments", "profile"}
        if self._settings.profile == ESTIMATED:  # there are estimates for the whole store, too
            asked -= {"profile"}
        if retrieval.config.segments is not None and not asked:  # the store's default, which is not available here
            retrieval = self._memories.retrieval(self._datastore, replace(self._settings, search="whole"))
        check(
            retrieval.config.fast is None and retrieval.config.segments is None,
            f"{'Fast kNN-MT' if retrieval.config.fast else 'retrieval by segment'} needs the source before the "
            f"first step, which a logits processor does not see; use a Translator, or other settings "
            "(profile='estimated')",
        )
        return retrieval

    def _begin(self, sentences: int, prompt: int) -> None:
        check(
            self._loaded.device == self._device,
            f"the model was on {self._device} when its KNNLogitsProcessor was made, and is now on "
            f"{self._loaded.device}; move the model before you make the processor",
        )
        self._memories.refresh([self._datastore])
        self._batch = BatchRetrieval([self._retrieval()] * sentences, self.statistics)
        self._prompt = prompt
        self._alike = True
        self._given_logits = None

    def _mix(self, step: WatchedStep, log_probabilities: Tensor, generated: Tensor) -> Tensor:
        """Equation 3, (rows, vocabulary); generated (rows, length).

        Until the first token that is not forced, the rows of a sentence are equal, so only one is searched.
        """
        rows, sentences = len(step.states), step.sentences
        width = 1 if self._alike else rows // sentences
        states = step.states.view(sentences, rows // sentences, -1)[:, :width]
        mixture = log_probabilities.view(sentences, rows // sentences, -1)[:, :width]
        mixture = mixture.clone(memory_format=torch.contiguous_format)
        history = generated.view(sentences, rows // sentences, -1)[:, :width]
        mixture += self._batch.mix(states, mixture, history)[..., None]
        return mixture.expand(-1, rows // sentences, -1).reshape(rows, -1)

    def _as_given(self, scores: Tensor, logits: Tensor, log_probabilities: Tensor) -> Tensor:
        """The one of both that `generate` gave to its first processor. Most tokens still have its value."""
        if self._given_logits is None:
            finite = scores.isfinite()
            half = finite.sum() / 2
            self._given_logits = bool(((scores == logits) & finite).sum() > half)
            as_log_probabilities = torch.isclose(scores, log_probabilities, rtol=1e-4, atol=1e-4) & finite
            if not self._given_logits and as_log_probabilities.sum() <= half:
                raise SettingError(
                    "the scores that reached KNNLogitsProcessor are no longer the model's: another processor "
                    "changed most of them. Put KNNLogitsProcessor first in logits_processor, and use only one."
                )
        return logits if self._given_logits else log_probabilities
