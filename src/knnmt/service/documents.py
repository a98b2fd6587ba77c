"""`Documents`: files that tools send. They are translated in the background, and deleted soon afterwards.

A document and its translation are in their own directory, which is deleted when the service ends (`scratch.py`). Their
file names are ours; only a plain ending of the sender's name is used. Units are decoded together with the texts of all
other requests.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePath
from threading import Lock, Semaphore
from typing import IO

from knnmt.corpus.glossary import Glossary
from knnmt.documents.direction import direction_of, model_for_document
from knnmt.documents.elements import plain
from knnmt.documents.kept import Kept
from knnmt.documents.naming import download_name
from knnmt.documents.opening import open_document
from knnmt.documents.translating import to_translate, translate_document
from knnmt.engine.language_codes import Languages
from knnmt.protection.marked import Marked
from knnmt.service.access import Caller
from knnmt.service.background import Background, WorkRecord
from knnmt.service.config import Limits
from knnmt.service.domains import Domain, Domains
from knnmt.service.problems import Problem
from knnmt.service.scheduling.batching import Batcher
from knnmt.service.scratch import Scratch
from knnmt.translator.memories import Request, RequestedLanguages
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.translation import Translation
from knnmt.translator.translator import Translator

_LARGE_BYTES = 1 << 20  # of a document that small ones do not wait for
_WRITTEN_BYTES = 1 << 20  # units that are submitted at once
_KEPT = 50  # documents, finished or not
_KEPT_SECONDS = 3_600
_ENDING = re.compile(r"\.[a-z0-9]{1,10}")
_KEY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentWork:
    """How a document is translated.

    client: whose turns its texts take (`Caller.client`)
    languages: for formats that hold any number of them
    model_languages: the languages that are given to the model, if it needs them
    with_remarks: whether the document gets remarks about where its translations came from
    ignore_stated: ignore the languages that the document states
    """

    domain: Domain
    client: Hashable
    languages: RequestedLanguages
    model_languages: RequestedLanguages = (None, None)
    glossary: Glossary | None = None
    settings: TranslationSettings = field(default_factory=TranslationSettings)
    with_remarks: bool = False
    ignore_stated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SentDocument(WorkRecord):
    """A document that is being translated. Its parts are units to translate.

    key: whoever knows it may ask for the document
    download_name: of the translation, once the document is read
    characters: that were translated
    """

    key: str
    place: Path
    work: DocumentWork
    download_name: str | None = None
    characters: int = 0

    @property
    def source(self) -> Path:
        ending = PurePath(self.name).suffix.lower()
        return self.place / f"document{ending if _ENDING.fullmatch(ending) else ''}"

    @property
    def result(self) -> Path:
        return self.place / "result"

    @property
    def rows(self) -> Path:
        return self.place / "rows"


class Documents:
    """The documents of a service. Threads may share it."""

    def __init__(
        self, translator: Translator, batcher: Batcher, domains: Domains, scratch: Scratch, limits: Limits
    ) -> None:
        self._limits = limits
        self._translator, self._batcher, self._domains, self._scratch = translator, batcher, domains, scratch
        self._sending = Lock()
        self._work = Background[SentDocument](_KEPT, "document", self._translate, self._in_words)
        # Documents are read and written in turn, but small ones do not wait for large ones.
        self._reading = {is_large: Semaphore() for is_large in (False, True)}

    def send(self, name: str, content: IO[bytes], by: str, work: DocumentWork) -> SentDocument:
        """Accept a document, and start to translate it.

        If too many are kept, the client that has most of them loses its oldest one.
        """
        self._limits.check(work.settings)
        sent = SentDocument(
            id=secrets.token_hex(16),
            key=secrets.token_hex(16),
            name=name,
            by=by,
            place=self._scratch.file(""),
            work=work,
        )
        try:
            sent.place.mkdir()
            _write(content, sent.source)
            with self._sending:
                self._make_room(work.client)
                self._work.add(sent)
        except BaseException:
            shutil.rmtree(sent.place, ignore_errors=True)
            raise
        return sent

    def of(self, number: str, key: str, caller: Caller | None = None) -> SentDocument:
        """A document, for the sender who knows its secret; without a caller, for whoever knows the secret."""
        found = self._work.get(number.lower())
        if found is None or not hmac.compare_digest(found.key.encode(), key.lower().encode("utf-8", "replace")):
            raise _no_document()
        if caller is not None and not (caller.name == found.by and caller.sees(found.work.domain.name)):
            raise _no_document()
        return found

    def units(self, sent: SentDocument, first: int, most: int) -> tuple[list[dict[str, object]], int]:
        """The rows of a translated document's units in the order of review, and their number in all.

        first, most: the number of the first row, from 0, and how many
        """
        _require_done(sent)
        try:
            with sent.rows.open(encoding="utf-8") as lines:
                total = int(next(lines))
                return [json.loads(line) for line in islice(lines, first, first + most)], total
        except OSError:
            raise _no_document() from None

    def take(self, sent: SentDocument) -> bytes:
        """Return the translation and delete the document."""
        _require_done(sent)
        try:
            content = sent.result.read_bytes()
        except OSError:
            raise _no_document() from None
        self.forget(sent)
        return content

    def over(self, sent: SentDocument) -> Future[SentDocument]:
        """The document when it is translated, or when that has failed."""
        return self._work.over(sent.id)

    def forget(self, sent: SentDocument) -> None:
        """Cancel and delete a document."""
        self._work.forget(sent)
        shutil.rmtree(sent.place, ignore_errors=True)

    def close(self) -> None:
        """End. Documents that are not done are lost."""
        self._work.close()

    def _make_room(self, client: Hashable) -> None:
        """Forget old documents, and one of the client that has most of them if there are too many."""
        for each in self._work:
            if each.is_over and each.created < time.time() - _KEPT_SECONDS:
                self.forget(each)
        sent = list(self._work)
        if len(sent) < _KEPT:
            return
        counts = Counter(each.work.client for each in sent)
        [(most, count)] = counts.most_common(1)
        if count <= counts[client] + 1:
            raise Problem(429, "too_many_documents", f"{_KEPT} documents are already kept; send this one later", 60)
        self.forget(next(each for each in sent if each.work.client == most))

    def _in_words(self, sent: SentDocument, message: str) -> str:
        return self._domains.named_in(message).replace(str(sent.source), sent.name)

    def _translate(self, sent: SentDocument) -> None:
        reading = self._reading[sent.source.stat().st_size > _LARGE_BYTES]
        with reading:
            self._do(sent, reading)

    def _do(self, sent: SentDocument, reading: Semaphore) -> None:
        work = sent.work
        document = open_document(sent.source, work.languages)
        document.ignores_languages = work.ignore_stated
        if self._translator.chooses_model:
            languages: RequestedLanguages | None = work.domain.languages
            if languages is None:
                choice = model_for_document(document, PurePath(sent.name), work.model_languages)
                languages = choice.source, choice.target
                document = open_document(sent.source, languages)
                document.ignores_languages = work.ignore_stated
            work = replace(work, languages=languages, model_languages=languages)
        engine = self._translator.between(work.model_languages).engine
        known = Languages(*work.languages, engine.languages.codes)
        direction_of(document, sent.name, known, f"the domain {work.domain.name!r}", "name a domain of these languages")
        units = to_translate(document)
        sent = self._work.update(
            sent,
            work=work,
            download_name=download_name(sent.name, *work.languages, document.bilingual),
            characters=sum(len(plain(unit.source)) for unit in units),
            of=len(units),
        )
        most = self._limits.text_characters
        if (longest := max((len(plain(unit.source)) for unit in units), default=0)) > most:
            raise Problem(
                413,
                "too_large",
                f"a unit of the document has {longest:,} characters; the service takes at most {most:,}: divide the "
                "unit, or translate the document with `knnmt translate`",
            )
        with Kept(None, "") as kept:
            outcome = translate_document(
                document, lambda *texts: self._translations(sent, reading, *texts), kept, with_remarks=work.with_remarks
            )
        sent.result.write_bytes(outcome.data)
        rows = [json.dumps(row.as_json(), ensure_ascii=False) for row in outcome.rows]
        sent.rows.write_text("".join(f"{line}\n" for line in (len(rows), *rows)), encoding="utf-8")

    def _translations(
        self,
        sent: SentDocument,
        reading: Semaphore,
        texts: Sequence[Marked],
        contexts: Sequence[str],
        kinds: Sequence[tuple[str, ...]],
    ) -> list[Translation]:
        work = sent.work
        requests = [
            Request(
                text,
                work.domain.store,
                None,
                work.glossary,
                source_lang=work.model_languages[0],
                target_lang=work.model_languages[1],
                context=context,
                text_kinds=kinds_of_text,
            )
            for text, context, kinds_of_text in zip(texts, contexts, kinds, strict=True)
        ]
        settings = replace(work.settings, match=work.domain.store is not None)
        futures = self._batcher.submit(requests, settings, client=work.client)

        def cancel() -> None:
            for each in futures:
                each.cancel()

        made: list[Translation] = []
        before = self._work.update(sent).done
        reading.release()
        try:
            with self._work.stopped_by(sent, cancel):
                for future in futures:
                    made.append(future.result())
                    self._work.update(sent, done=before + len(made))
        finally:
            reading.acquire()
        return made


def _require_done(sent: SentDocument) -> None:
    if sent.state == "failed":
        raise Problem(422, "failed", sent.message or "")
    if sent.state != "done":
        raise Problem(503, "not_ready", "the document is not yet translated", retry_after=2)


def _no_document() -> Problem:
    return Problem(404, "unknown_document", "there is no such document, or it has already been downloaded")


def _write(content: IO[bytes], place: Path) -> None:
    with place.open("xb") as out:
        while piece := content.read(_WRITTEN_BYTES):
            out.write(piece)
