"""A server that speaks the part of S3 that `s3fs` uses: objects in memory, and requests that get no answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

BUCKET = "firma"
KEY, SECRET = "own-key", "own-secret"
_DATE = "2026-01-02T03:04:05.000Z"
_PAGE = 4  # names in one answer, so that lists take several


@dataclass
class Bucket:
    """The objects of the server, and what it was asked for.

    uploads: the parts of uploads that are not complete, by their number
    asked: method and name of each request, without those that only ask whether something is there
    hold: requests for which this is true get no answer, and `holding` is set
    refuse: requests for which this is true are forbidden
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    hold: Callable[[str, str], bool] = lambda _method, _name: False
    refuse: Callable[[str, str], bool] = lambda _method, _name: False
    holding: Event = field(default_factory=Event)
    released: Event = field(default_factory=Event)
    url: str = ""

    def let_go(self) -> None:
        """Close the connections of requests that are held, and hold no more."""
        self.hold = lambda _method, _name: False
        self.released.set()
        self.holding, self.released = Event(), Event()

    @property
    def environment(self) -> dict[str, str]:
        """What tells `s3fs` about this server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            "no_proxy": "127.0.0.1",
        }


@contextmanager
def s3_server() -> Iterator[Bucket]:
    """A server of one bucket on this machine."""
    bucket = Bucket()

    class Answers(_Answers):
        held = bucket

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    bucket.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield bucket
    finally:
        bucket.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    held: Bucket

    def log_message(self, *_: Any) -> None:
        pass

    def handle(self) -> None:
        with suppress(OSError):  # a client that was killed
            super().handle()

    def _begin(self) -> bool:
        """Take the request apart; False if it has been answered."""
        parts = urlsplit(self.path)
        bucket, _, self.name = unquote(parts.path).removeprefix("/").partition("/")
        self.query = {name: value[0] for name, value in parse_qs(parts.query, keep_blank_values=True).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            self.body = _unchunked(self.body)
        if self.command != "HEAD":
            self.held.asked.append((self.command, self.name))
        if self.held.hold(self.command, self.name):
            released = self.held.released
            self.held.holding.set()
            released.wait()
            self.close_connection = True
            return False
        if f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
            return self._wrong(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist.")
        if self.held.refuse(self.command, self.name):
            return self._wrong(403, "AccessDenied", "Access Denied")
        if bucket != BUCKET:
            return self._wrong(404, "NoSuchBucket", "The specified bucket does not exist")
        return True

    def _wrong(self, status: int, code: str, message: str) -> bool:
        self._answer(f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode(), status)
        return False

    def _answer(self, content: bytes = b"", status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        sent = {"Content-Length": str(len(content)), "Content-Type": "application/xml"}
        for name, value in (sent | dict(headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _put(self, content: bytes) -> str:
        self.held.objects[self.name] = content
        return _etag(content)

    def do_HEAD(self) -> None:
        self._get()

    def do_GET(self) -> None:
        self._get()

    def _get(self) -> None:
        if not self._begin():
            return
        if not self.name:
            self._answer(self._listed())
            return
        if (content := self.held.objects.get(self.name)) is None:
            self._wrong(404, "NoSuchKey", "The specified key does not exist.")
            return
        headers = {"ETag": _etag(content), "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT", "Accept-Ranges": "bytes"}
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
            if first >= len(content):
                self._wrong(416, "InvalidRange", "The requested range is not satisfiable")
                return
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            self._answer(content[first : last + 1], 206, headers)
            return
        if self.command == "HEAD":
            headers["Content-Length"] = str(len(content))
        self._answer(content, headers=headers)

    def _listed(self) -> bytes:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        rows: dict[str, str] = {}
        for name, content in sorted(self.held.objects.items()):
            if not name.startswith(prefix):
                continue
            inner, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if found:
                whole = prefix + inner + delimiter
                rows[whole] = f"<CommonPrefixes><Prefix>{escape(whole)}</Prefix></CommonPrefixes>"
            else:
                rows[name] = (
                    f"<Contents><Key>{escape(name)}</Key><LastModified>{_DATE}</LastModified>"
                    f"<ETag>{escape(_etag(content))}</ETag><Size>{len(content)}</Size></Contents>"
                )
        after = self.query.get("continuation-token", "")
        left = [name for name in rows if name > after]
        page = left[: min(_PAGE, int(self.query.get("max-keys", _PAGE)))]
        more = len(page) < len(left)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more and page else ""
        return (
            f"<ListBucketResult><Name>{BUCKET}</Name><KeyCount>{len(page)}</KeyCount>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(rows[name] for name in page)}"
            "</ListBucketResult>"
        ).encode()

    def do_PUT(self) -> None:
        if not self._begin():
            return
        if not self.name:
            self._wrong(409, "BucketAlreadyOwnedByYou", "The bucket exists.")
        elif "uploadId" in self.query:
            self.held.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = self.body
            self._answer(headers={"ETag": _etag(self.body)})
        elif source := self.headers.get("x-amz-copy-source"):
            etag = self._put(self.held.objects[unquote(source).removeprefix("/").partition("/")[2]])
            self._answer(
                f"<CopyObjectResult><ETag>{etag}</ETag><LastModified>{_DATE}</LastModified></CopyObjectResult>".encode()
            )
        else:
            self._answer(headers={"ETag": self._put(self.body)})

    def do_POST(self) -> None:
        if not self._begin():
            return
        if "delete" in self.query:
            names = [element.text or "" for element in _elements(self.body, "Key")]
            for name in names:
                self.held.objects.pop(name, None)
            self._answer(b"<DeleteResult></DeleteResult>")
        elif "uploads" in self.query:
            number = f"upload-{len(self.held.asked)}"
            self.held.uploads[number] = {}
            self._answer(
                f"<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{escape(self.name)}</Key>"
                f"<UploadId>{number}</UploadId></InitiateMultipartUploadResult>".encode()
            )
        else:
            parts = self.held.uploads.pop(self.query["uploadId"])
            numbers = [int(element.text or 0) for element in _elements(self.body, "PartNumber")]
            etag = self._put(b"".join(parts[number] for number in numbers))
            self._answer(
                f"<CompleteMultipartUploadResult><Key>{quote(self.name)}</Key><ETag>{etag}</ETag>"
                "</CompleteMultipartUploadResult>".encode()
            )

    def do_DELETE(self) -> None:
        if not self._begin():
            return
        if "uploadId" in self.query:
            self.held.uploads.pop(self.query["uploadId"], None)
        else:
            self.held.objects.pop(self.name, None)
        self._answer(status=204)


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _elements(body: bytes, name: str) -> list[ElementTree.Element]:
    return [element for element in ElementTree.fromstring(body).iter() if element.tag.rpartition("}")[2] == name]


def _unchunked(body: bytes) -> bytes:
    """The content of a body that was sent in chunks with a checksum behind them."""
    content = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if not length:
            return content
        content, body = content + body[:length], body[length + 2 :]
