"""`Service`: all that the routes use, from the loaded model to the keys. It starts and ends with the process."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread
from typing import TypeVar

import torch

from knnmt.config import OpenStores
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.correcting import undo
from knnmt.datastore.manifest import read_manifest
from knnmt.datastore.store import Change, Datastore
from knnmt.engine.shipped import shipped_models
from knnmt.service.access import Access
from knnmt.service.config import ServiceConfig
from knnmt.service.corrections import Corrections
from knnmt.service.data_directory import prepare_data_directory
from knnmt.service.documents import Documents
from knnmt.service.domains import Domain, Domains
from knnmt.service.exchanges import Exchanges
from knnmt.service.glossaries import Glossaries
from knnmt.service.jobs import Jobs
from knnmt.service.metrics import Metrics
from knnmt.service.problems import Problem
from knnmt.service.scheduling.batching import Batcher
from knnmt.service.scheduling.fair_queue import Shares
from knnmt.service.scheduling.fair_threads import FairThreads
from knnmt.service.scratch import Scratch
from knnmt.service.usage import Usage
from knnmt.service.writing import WriteResult, Writers
from knnmt.translator.memories import Request
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.translation import Translation
from knnmt.translator.translator import Translator

_log = logging.getLogger("knnmt.service")
# Segments decoded together. On a CPU, 16 are hardly faster than twice 8, and everybody would wait twice as long.
_ON_A_CPU, _ON_A_GPU = 8, 128
_MOST_STORES = 1_000  # open at the same time
_TEXT_THREADS = 1  # for work on texts: decoding would wait for every thread of Python that is busy beside it
_LEAVING_SECONDS = 0.3  # for a process that ends at once to remove its files; the next one removes the others
_WORKERS = 2  # batches decoded at the same time on a CPU
Result = TypeVar("Result")


class Service:
    """A translator and its domains, ready for requests.

    translator: used instead of one that the settings describe
    """

    def __init__(self, config: ServiceConfig, translator: Translator | None = None) -> None:
        self.config = config
        self.access = Access(config.keys)
        self.metrics = Metrics()
        if config.data is not None:
            prepare_data_directory(config.data)
        self.scratch = Scratch()
        self.domains = Domains(config.stores, config.default_domain, config.data)
        first = next((each.store for each in self.domains if each.store is not None), None)
        self.translator = translator or Translator(
            config.model,
            device=config.device,
            dtype=config.dtype,
            threads=config.threads,
            source_lang=config.source_language,
            target_lang=config.target_language,
            datastore=first if config.model is None else None,
            open_stores=OpenStores(_MOST_STORES, None if config.store_memory is None else config.store_memory << 20),
            settings=config.settings,
        )
        for domain in self.domains:
            if domain.store is not None:
                memories = self.translator.for_store(domain.store).memories
                memories.refresh([domain.store])  # closes others if they take too much memory
                memories.retrieval(domain.store, self.translator.settings.retrieval)  # raises errors at once
        limits = config.limits
        on_cpu = self.translator.engine.device.type == "cpu"
        batch, workers = (_ON_A_CPU, min(_WORKERS, torch.get_num_threads())) if on_cpu else (_ON_A_GPU, 1)
        if workers > 1:
            torch.set_num_threads(torch.get_num_threads() // workers)
        self.batcher = Batcher(self.translator, batch, limits.cached, self.metrics.batch, workers)
        self.texts = Shares(limits.queue)
        self.writers = Writers(self.translator, self.metrics.written)
        self.jobs = Jobs(config.data, limits, self.translator, self.domains, self.writers)
        self.metrics.watch(self.batcher, self.domains, self.jobs, lambda: self.ready)
        self.corrections = Corrections(config.data)
        self.glossaries = Glossaries(config.data)
        self.documents = Documents(self.translator, self.batcher, self.domains, self.scratch, limits)
        self.exchanges = Exchanges(config.data)
        self.usage = Usage(config.data)
        self.text_threads = FairThreads(_TEXT_THREADS, "knnmt-text")
        self.matches = FairThreads(_TEXT_THREADS, "knnmt-match")
        self.searches = FairThreads(1, "knnmt-search")  # and exports, which read whole memories
        self.ready = True

    async def translate(
        self, requests: Sequence[Request], settings: TranslationSettings, client: Hashable, seconds: float | None = None
    ) -> list[Translation]:
        """Translate texts in order. Cancelling this cancels the texts.

        client: whose turns and share the texts take (`Caller.client`)
        seconds: time limit; by default, and at most, that of the limits
        """
        made = await self.until(self._translated(requests, settings, client), seconds)
        self.metrics.translated(made)
        return made

    async def _translated(
        self, requests: Sequence[Request], settings: TranslationSettings, client: Hashable
    ) -> list[Translation]:
        async with self.texts.hold(client, len(requests)):
            futures = self.batcher.submit(requests, settings, client=client)
            try:
                return await results_of(futures)
            finally:
                for future in futures:  # no effect on those that are done
                    future.cancel()

    async def until(self, wanted: Awaitable[Result], seconds: float | None) -> Result:
        """Await something for at most so many seconds; then cancel it and raise a problem."""
        most = self.config.limits.wait_seconds
        seconds = most if seconds is None else min(seconds, most)
        try:
            async with asyncio.timeout(seconds):
                return await wanted
        except TimeoutError:
            raise Problem(
                504,
                "deadline",
                f"the request was not done within {seconds:g} seconds and was cancelled",
                retry_after=5,
            ) from None

    async def correct(self, domain: Domain, by: str, pairs: Sequence[SegmentPair]) -> WriteResult:
        """Let pairs replace what a domain holds for their sources. by: the name of the caller's key"""
        written = await shielded(
            await asyncio.to_thread(self.writers.of(domain.required_store()).put, "replace", pairs)
        )
        await asyncio.to_thread(self.corrections.learn, domain.name, by, written.replacements)
        return written

    async def undo(self, domain: Domain, number: str) -> WriteResult:
        """Undo a correction: the domain holds again what it held for the source before."""
        correction = self.corrections.one(domain.name, number)

        def undone(store: Datastore) -> Change:
            change = undo(store, correction.replacement, self.translator.for_store(store).engine)
            if change is None:
                raise Problem(
                    409, "changed_since", "the domain no longer holds this correction, so there is nothing to undo"
                )
            return change

        written = await shielded(self.writers.of(domain.required_store()).do(undone))
        await asyncio.to_thread(self.corrections.drop, domain.name, correction)
        return written

    def describe(self, domain: Domain) -> dict[str, object]:
        """A domain as clients see it, without its path on disk."""
        facts: dict[str, object] = {"name": domain.name, "default": domain.name == self.domains.default}
        if domain.store is None:
            directions = [{"source": source, "target": target} for source, target in self.directions]
            only = directions[0] if len(directions) == 1 else {"source": None, "target": None}
            languages = {"source_language": only["source"], "target_language": only["target"]}
            return {**facts, "memory": False, **languages, "directions": directions}
        manifest = read_manifest(domain.store)
        return {
            **facts,
            "memory": True,
            "source_language": manifest.source_language,
            "target_language": manifest.target_language,
            "segments": manifest.live_sentences,
            "entries": manifest.live_entries,
            "generation": manifest.generation,
            "deletable": domain.made,
        }

    @property
    def directions(self) -> list[tuple[str | None, str | None]]:
        """The languages that the model alone translates between; a multilingual model has those it was set to."""
        if self.translator.chooses_model:
            return list(shipped_models().values())
        languages = self.translator.engine.languages
        return [(languages.source, languages.target)]

    def delete(self, name: str) -> None:
        """Delete a domain that was made by a request, with its store."""
        gone = self.domains.delete(name)
        if gone.store is not None:
            self.writers.forget(gone.store)
            self.translator.close_store(gone.store)
            self.corrections.forget(name)

    def refuse(self) -> None:
        """Answer everything that waits: it is not done, because the service ends."""
        self.ready = False
        self.batcher.refuse()
        self.text_threads.close()
        self.matches.close()
        self.searches.close()

    def close(self) -> None:
        """End: refuse texts that are not decoded yet, and finish changes of stores."""
        self.refuse()
        self.documents.close()
        self.jobs.close()
        self.writers.close()
        self.batcher.close()
        self._clean_up()

    def abandon(self) -> None:
        """End the process at once. Changes of stores that were confirmed are durable; jobs resume at the next start."""
        _log.warning("the service ends although work is not done: the time limit ending_seconds is over")
        leaving = Thread(target=self._clean_up, daemon=True)
        leaving.start()
        leaving.join(_LEAVING_SECONDS)
        os._exit(0)

    def _clean_up(self) -> None:
        self.usage.save()
        self.scratch.close()


def shielded(future: Future[Result]) -> asyncio.Future[Result]:
    """Await the future of a thread.

    Cancelling the waiting task does not cancel it: work that has started is finished.
    """
    return asyncio.shield(asyncio.wrap_future(future))


async def results_of(futures: Sequence[Future[Result]]) -> list[Result]:
    """Await the results of threads, or the first error.

    The event loop is woken once. `asyncio.gather` would wake it for each result, which takes 0.1 s for a request with
    1,000 texts, during which nobody else is answered.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    left, reported, changing = len(futures), not futures, Lock()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    def hear(future: Future[Result]) -> None:
        nonlocal left, reported
        with changing:
            left -= 1
            if reported or (left and not future.cancelled() and future.exception() is None):
                return
            reported = True
        with suppress(RuntimeError):  # the event loop has ended, and the request with it
            loop.call_soon_threadsafe(end)

    if reported:
        return []
    for each in futures:
        each.add_done_callback(hear)
    await over
    failed = next((each for each in futures if each.done() and not each.cancelled() and each.exception()), None)
    return [failed.result()] if failed is not None else [each.result() for each in futures]
