"""Large language models behind any endpoint with OpenAI's interface, for comparison: POST …/v1/chat/completions.

This uses only the standard library. Answers are not trusted: they are read up to a limit, and their form is checked. A
key comes only from the environment (KNNMT_LLM_KEY), and is sent over TLS, or to this machine.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from knnmt import SegmentPair, __version__
from knnmt.errors import ServiceError
from knnmt_lab.checks import check

KEY = "KNNMT_LLM_KEY"
MAX_EXAMPLES = 100
_SECONDS = 120.0  # for an answer
_MAX_CHARACTERS = 20_000  # of a translation
_TOKENS = (64, 4)  # the limit of an answer: a fixed number, plus a number for each word of the source
_TRIES, _AGAIN = 3, (429, 500, 502, 503, 504)
_HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ChatSettings:
    """A large language model and its examples.

    url: http://HOST:PORT, with or without /v1 or the whole path
    model: its name at the endpoint
    examples: number of memory segments that are shown with each text, those that cover it best
    """

    url: str
    model: str
    examples: int = 0

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            sound = False
        check(sound, f"expected the URL of an endpoint, such as http://127.0.0.1:8000/v1, got {self.url!r}")
        check(bool(self.model), f"{self.url}: which model? Give model=NAME, as the endpoint calls it")
        sound = 0 <= self.examples <= MAX_EXAMPLES
        check(sound, f"examples must lie between 0 and {MAX_EXAMPLES}, got {self.examples}")


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: the text on one line, and its number of tokens as the endpoint reports it, or 0."""

    text: str
    tokens: int


def _read(content: bytes) -> Said:
    """The first choice; ValueError if there is none. Endpoints may add their own fields anywhere."""
    try:
        answer = json.loads(content)
        if not answer["choices"]:
            raise ValueError("there is no choice in it")
        text = answer["choices"][0]["message"]["content"]
        tokens = (answer.get("usage") or {}).get("completion_tokens", 0)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it has no choices[0].message.content") from error
    if not isinstance(text, str) or not isinstance(tokens, int):
        raise ValueError("expected a text and a number of tokens")  # noqa: TRY004 - as for all unreadable answers
    text.encode()  # a lone surrogate is no text
    return Said(" ".join(text.split())[:_MAX_CHARACTERS], max(0, tokens))


def _printable(text: str) -> str:
    """A text that a terminal does not obey: what is not printed is replaced."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


class ChatEndpoint:
    """Asks one model, one text at a time. seconds, max_answer_bytes: limits for an answer"""

    def __init__(
        self,
        settings: ChatSettings,
        languages: tuple[str, str],
        seconds: float = _SECONDS,
        max_answer_bytes: int = 1 << 20,
    ) -> None:
        self._max_answer_bytes = max_answer_bytes
        self._settings, self._languages, self._seconds = settings, languages, seconds
        parts = urlsplit(settings.url)
        path = parts.path.rstrip("/")
        if not path.endswith("/chat/completions"):
            path += "/chat/completions" if path.endswith("/v1") else "/v1/chat/completions"
        self._path = path + (f"?{parts.query}" if parts.query else "")
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port = parts.hostname or "", parts.port
        self._key = os.environ.get(KEY, "")
        check(
            not self._key or parts.scheme == "https" or self._host in _HERE,
            f"{settings.url}: the key in {KEY} would be sent there unencrypted. Give an https URL, or unset {KEY}",
        )
        check(
            self._key.isascii() and self._key.isprintable(),
            f"{KEY}: the key contains characters that a header cannot have",
        )

    def translate(self, text: str, examples: Sequence[SegmentPair] = ()) -> Said:
        """A translation; the examples are earlier turns of the conversation."""
        source, target = self._languages
        asked = f"Translate from {source} into {target}. Answer with the translation alone."
        messages = [{"role": "system", "content": asked}]
        for pair in examples:
            messages.append({"role": "user", "content": pair.source})
            messages.append({"role": "assistant", "content": pair.target})
        messages.append({"role": "user", "content": text})
        most = _TOKENS[0] + _TOKENS[1] * len(text.split())
        body = {"model": self._settings.model, "messages": messages, "temperature": 0, "max_tokens": most}
        return self._asked(json.dumps(body).encode())

    def _asked(self, body: bytes) -> Said:
        place = self._settings.url
        for last in range(_TRIES - 1, -1, -1):
            status, content = self._post(body)
            if status in _AGAIN and last:
                time.sleep(_TRIES - last)
                continue
            break
        if status != 200:
            said = _printable(content[:300].decode("utf-8", "replace"))
            key = f" A key is taken from {KEY}." if status in (401, 403) else ""
            raise ServiceError(f"{place}: answered {status}: {said}.{key} Check the URL and model=NAME", status=status)
        try:
            return _read(content)
        except ValueError as error:
            raise ServiceError(
                f"{place}: expected an answer of chat/completions, but it cannot be read ({error}). Is this the URL "
                "of such an endpoint?"
            ) from error

    def _post(self, body: bytes) -> tuple[int, bytes]:
        place = self._settings.url
        headers = {"Content-Type": "application/json", "User-Agent": f"knnmt/{__version__}"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        connection = self._kind(self._host, self._port, timeout=self._seconds)
        try:
            connection.request("POST", self._path, body, headers)
            response = connection.getresponse()
            content = response.read(self._max_answer_bytes + 1)
        except TimeoutError as error:
            raise ServiceError(
                f"{place}: no answer within {self._seconds:g} s. Is the model loaded, and fast enough?"
            ) from error
        except (OSError, HTTPException) as error:
            raise ServiceError(f"{place}: cannot be reached: {error}. Is an endpoint running there?") from error
        finally:
            connection.close()
        if len(content) > self._max_answer_bytes:
            raise ServiceError(
                f"{place}: its answer has more than {self._max_answer_bytes >> 20} MiB, which is too much"
            )
        return response.status, content
