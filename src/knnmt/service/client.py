"""`Client`: use a service from Python. This module needs only the standard library.

    client = knnmt.Client("http://127.0.0.1:8500")
    print(client.translate("Die Datei wurde gelöscht.").text)

Every call opens its own connection, so threads may share a client.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import IO, Any, TypeVar, overload
from urllib.parse import quote, urlencode, urlsplit

from knnmt.config import check
from knnmt.errors import InputError, ServiceError
from knnmt.output_files import write_output
from knnmt.records import as_record, parse_json
from knnmt.service.answers import SentMemory, ServedDocument, ServedDomain, ServedMatch, ServedTranslation, Stored

_MAX_LINE_BYTES = 64 << 20
_POLL_SECONDS = (0.1, 2.0)  # the first and the longest pause between two questions about a job's progress
Answer = TypeVar("Answer")


Work = TypeVar("Work", SentMemory, ServedDocument)


@dataclass(frozen=True, slots=True)
class _Grown:
    """How far a text is translated."""

    index: int
    so_far: str


class Client:
    """A client of a running service.

    address: as `knnmt serve` prints it; a path in it, such as `/d/NAME` for a domain, is put before the paths of the
        service
    key: an API key, if the service has keys
    domain: for calls that name none; by default the service's
    timeout_seconds: for each answer
    """

    def __init__(
        self,
        address: str = "http://127.0.0.1:8500",
        key: str | None = None,
        *,
        domain: str | None = None,
        timeout_seconds: float = 300.0,
    ) -> None:
        parts = urlsplit(address)
        check(
            parts.scheme in ("http", "https") and bool(parts.hostname),
            f"expected the address of a service, such as http://127.0.0.1:8500, got {address!r}",
        )
        self._parts, self._key, self._domain, self._timeout = parts, key, domain, timeout_seconds

    def __repr__(self) -> str:  # without the key
        return f"Client({self._parts.geturl()!r})"

    # Translating ------------------------------------------------------------------------------------------------------

    @overload
    def translate(self, texts: str, *, domain: str | None = None, **settings: Any) -> ServedTranslation: ...

    @overload
    def translate(
        self, texts: Sequence[str], *, domain: str | None = None, **settings: Any
    ) -> list[ServedTranslation]: ...

    def translate(
        self, texts: str | Sequence[str], *, domain: str | None = None, **settings: Any
    ) -> ServedTranslation | list[ServedTranslation]:
        """Translate one text, or several in order.

        settings: those of `POST /v1/translate`: beam, n_best, glossary, retrieval, evidence, match and so on
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        answer = self._ask("POST", "/v1/translate", self._about(several, domain, settings))
        found = [_read(ServedTranslation, each) for each in _listed(answer, "translations")]
        if len(found) != len(several):
            raise ServiceError(f"expected {len(several)} translations, found {len(found)}", "not_understood")
        return found[0] if isinstance(texts, str) else found

    def stream(
        self,
        texts: Sequence[str],
        *,
        domain: str | None = None,
        on_partial: Callable[[int, str], object] | None = None,
        **settings: Any,
    ) -> Iterator[ServedTranslation]:
        """Yield translations as they are done, each with the `index` of its text.

        on_partial: is called with the index of a text and its translation so far, which may still change; not for a
            service on a GPU
        """
        query = {**settings, "stream": True, "so_far": on_partial is not None}
        with self._answer("POST", "/v1/translate", self._about(list(texts), domain, query)) as response:
            while line := response.readline(_MAX_LINE_BYTES):
                content = _parsed(line)
                if isinstance(content, dict) and "code" in content:
                    raise ServiceError(str(content.get("message")), str(content["code"]))
                if on_partial is not None and isinstance(content, dict) and "so_far" in content:
                    grown = _read(_Grown, content)
                    on_partial(grown.index, grown.so_far)
                else:
                    yield _read(ServedTranslation, content)

    def match(
        self, texts: Sequence[str], *, domain: str | None = None, at_least: int = 50, limit: int = 5
    ) -> list[list[ServedMatch]]:
        """The segments of the memory that are similar to each text, the best first."""
        body = self._about(list(texts), domain, {"at_least": at_least, "limit": limit})
        matches = _listed(self._ask("POST", "/v1/match", body), "matches")
        return [[_read(ServedMatch, each) for each in of_text] for of_text in matches]

    def explain(self, texts: Sequence[str], *, domain: str | None = None, **settings: Any) -> list[dict[str, Any]]:
        """Where each word came from, as `POST /v1/explain` answers."""
        return _listed(self._ask("POST", "/v1/explain", self._about(list(texts), domain, settings)), "explanations")

    # Domains ----------------------------------------------------------------------------------------------------------

    def domains(self) -> list[ServedDomain]:
        """The domains that this client may use."""
        return [_read(ServedDomain, each) for each in _listed(self._ask("GET", "/v1/domains"), "domains")]

    def delete(self, domain: str) -> None:
        """Delete a domain that was made by a request."""
        self._ask("DELETE", f"/v1/domains/{quote(domain, safe='')}")

    def add(self, pairs: Iterable[tuple[str, str]], *, domain: str | None = None) -> Stored:
        """Add pairs of a source and a target. When this returns, they are stored, and the next request uses them."""
        return _read(Stored, self._ask("POST", self._segments(domain), _segments(pairs)))

    def correct(self, pairs: Iterable[tuple[str, str]], *, domain: str | None = None) -> Stored:
        """Replace what the domain holds for the sources of these pairs; pairs with new sources are added."""
        return _read(Stored, self._ask("PUT", self._segments(domain), _segments(pairs)))

    def remove(self, *, source: str | None = None, origin: str | None = None, domain: str | None = None) -> Stored:
        """Remove the pairs with a source text, with an origin, or with both."""
        chosen = {name: value for name, value in (("source", source), ("origin", origin)) if value is not None}
        return _read(Stored, self._ask("DELETE", f"{self._segments(domain)}?{urlencode(chosen)}"))

    # Memories ---------------------------------------------------------------------------------------------------------

    def send_memory(
        self, path: str | Path, domain: str, *, skip_malformed: bool = False, unfinished: bool = False
    ) -> SentMemory:
        """Send a memory, which becomes a domain or is added to one.

        This returns when it is sent; `wait` waits for the job.
        """
        path = Path(path)
        query = urlencode(
            {"name": path.name, "skip_malformed": _yes_or_no(skip_malformed), "unfinished": _yes_or_no(unfinished)}
        )
        with _opened(path) as file:
            where = f"/v1/domains/{quote(domain, safe='')}/memories?{query}"
            return _read(SentMemory, self._ask("POST", where, file))

    def memory(self, number: str) -> SentMemory:
        """The state of a memory's job."""
        return _read(SentMemory, self._ask("GET", f"/v1/jobs/{quote(number, safe='')}"))

    def memories(self) -> list[SentMemory]:
        """The jobs, the oldest first."""
        return [_read(SentMemory, each) for each in _listed(self._ask("GET", "/v1/jobs"), "jobs")]

    def cancel(self, number: str) -> SentMemory:
        """Cancel the job of a memory."""
        return _read(SentMemory, self._ask("DELETE", f"/v1/jobs/{quote(number, safe='')}"))

    def wait(self, number: str, on_progress: Callable[[SentMemory], object] = lambda _: None) -> SentMemory:
        """Wait until a job is over.

        If it failed or was cancelled, raise a `ServiceError`. on_progress: is called with its progress
        """
        job = _when_over(lambda: self.memory(number), on_progress)
        if job.state != "done":
            raise ServiceError(job.message or f"the job was {job.state}", job.state)
        return job

    # Documents --------------------------------------------------------------------------------------------------------

    def translate_document(
        self,
        path: str | Path,
        output: str | Path,
        *,
        domain: str | None = None,
        glossary: Mapping[str, str] | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        on_progress: Callable[[ServedDocument], object] = lambda _: None,
    ) -> ServedDocument:
        """Translate what is missing in a document (PO, XLIFF, DOCX and so on), and write the whole document to
        `output`.

        glossary: terms and their translations
        source_language, target_language: for models of many languages
        on_progress: is called with the progress

        If the document cannot be translated, this raises a `ServiceError` and writes nothing.
        """
        sent = self.send_document(
            path, domain=domain, glossary=glossary, source_language=source_language, target_language=target_language
        )
        try:
            done = _when_over(lambda: self.document(sent.id), on_progress)
            content = self.take_document(sent.id)  # if it failed, this raises the reason
        except BaseException:
            with suppress(ServiceError):
                self.forget_document(sent.id)
            raise
        write_output(Path(output), content)
        return done

    def send_document(
        self,
        path: str | Path,
        *,
        domain: str | None = None,
        glossary: Mapping[str, str] | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> ServedDocument:
        """Send a document. This returns when it is sent; `document` returns its state."""
        path = Path(path)
        named = domain if domain is not None else self._domain
        languages = (("source_language", source_language), ("target_language", target_language))
        query = [("name", path.name), ("domain", named), *languages]
        terms = [("term", f"{source}={target}") for source, target in (glossary or {}).items()]
        given = urlencode([(name, value) for name, value in [*query, *terms] if value is not None])
        with _opened(path) as file:
            return _read(ServedDocument, self._ask("POST", f"/v1/documents?{given}", file))

    def document(self, number: str) -> ServedDocument:
        """The state of a document."""
        return _read(ServedDocument, self._ask("GET", f"/v1/documents/{quote(number, safe='')}"))

    def take_document(self, number: str) -> bytes:
        """Download the translated document. The service then deletes it."""
        with self._answer("GET", f"/v1/documents/{quote(number, safe='')}/content") as response:
            return response.read()

    def forget_document(self, number: str) -> None:
        """Cancel and delete a document."""
        self._ask("DELETE", f"/v1/documents/{quote(number, safe='')}")

    # Asking -----------------------------------------------------------------------------------------------------------

    def _about(self, texts: list[str], domain: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
        named = domain if domain is not None else self._domain
        return {"texts": texts, **({} if named is None else {"domain": named}), **settings}

    def _segments(self, domain: str | None) -> str:
        named = domain if domain is not None else self._domain
        check(named is not None, "name the domain: domain=NAME, in this call or for the client")
        return f"/v1/domains/{quote(str(named), safe='')}/segments"

    def _ask(self, method: str, where: str, body: object = None) -> Any:
        with self._answer(method, where, body) as response:
            content = response.read()
            return _parsed(content) if content else None

    @contextmanager
    def _answer(self, method: str, where: str, body: object = None) -> Iterator[HTTPResponse]:
        """The answer of the service; raise a `ServiceError` if it is an error."""
        parts = self._parts
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(str(parts.hostname), parts.port, timeout=self._timeout)
        headers = {"Accept": "application/json", "User-Agent": "knnmt", "Connection": "close"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        sent: bytes | IO[bytes] | None
        if body is None or hasattr(body, "read"):
            sent = body  # type: ignore[assignment]
            if sent is not None:
                headers["Content-Type"] = "application/octet-stream"
        else:
            sent, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, parts.path.rstrip("/") + where, sent, headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise _error_of(response)
            yield response
        except TimeoutError as error:
            raise ServiceError(
                f"{self}: the service did not answer within {self._timeout:g} seconds", "timeout"
            ) from error
        except (OSError, HTTPException) as error:
            raise ServiceError(
                f"{self}: cannot reach the service: {error or type(error).__name__}", "unreachable"
            ) from error
        finally:
            connection.close()


def _when_over(look: Callable[[], Work], on_progress: Callable[[Work], object]) -> Work:
    """Ask again and again until something is over. on_progress: is called with its progress"""
    pause, most = _POLL_SECONDS
    while not (work := look()).is_over:
        on_progress(work)
        time.sleep(pause)
        pause = min(2 * pause, most)
    return work


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _yes_or_no(value: bool) -> str:
    return "true" if value else "false"


def _segments(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {"segments": [{"source": source, "target": target} for source, target in pairs]}


def _error_of(response: HTTPResponse) -> ServiceError:
    content = response.read(1 << 20)
    try:
        told = parse_json(content)
        message, code = str(told["message"]), str(told["code"])
    except (ValueError, LookupError, TypeError):  # from something other than the service, such as a proxy
        message, code = f"{response.status} {response.reason}", "error"
    after = response.headers.get("Retry-After", "")
    return ServiceError(message, code, response.status, float(after) if after.isdecimal() else None)


def _parsed(content: bytes) -> Any:
    try:
        return parse_json(content)
    except ValueError as error:
        raise ServiceError(
            f"expected JSON as the answer of a service, found something else: {error}", "error"
        ) from None


def _listed(answer: Any, name: str) -> list[Any]:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise ServiceError(
            f"expected {name!r} in the answer, found none. Is this address a knnmt service?", "not_understood"
        )
    return found


def _read(kind: type[Answer], content: Any) -> Answer:
    try:
        return as_record(kind, content, others=True)
    except ValueError as error:
        raise ServiceError(f"the answer has an unexpected form: {error}", "not_understood") from error
