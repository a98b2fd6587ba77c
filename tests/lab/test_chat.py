"""Large language models as systems: what is asked of an endpoint, and what its answers may be. The endpoint is ours."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import ServiceError, SettingError
from knnmt.evaluation.evaluating import evaluate
from knnmt.evaluation.systems import System, gather_systems, parse_system
from knnmt.retrieval.open_store import OpenStore
from knnmt_lab.chat import KEY, ChatEndpoint, ChatSettings
from knnmt_lab.chat_system import ChatSystem, chosen_pairs
from support.datastore_pairs import some_pairs


class Stub:
    """An endpoint that keeps what it is asked, and answers what it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answers: list[tuple[int, bytes]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.asked.append((self.path, dict(self.headers), body))
                status, content = (
                    stub.answers.pop(0) if stub.answers else (200, saying(body["messages"][-1]["content"]))
                )
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


def saying(text: str, **others: Any) -> bytes:
    """As such endpoints answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], **others}).encode()


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.setattr("knnmt_lab.chat.time.sleep", lambda _: None)
    made = Stub()
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


def endpoint(stub: Stub, path: str = "", seconds: float = 30, **limits: int) -> ChatEndpoint:
    return ChatEndpoint(ChatSettings(stub.url + path, "small"), ("de", "en"), seconds, **limits)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_what_is_asked(stub: Stub, path: str) -> None:
    stub.answers.append((200, saying("  It\nis\r\n good. ", usage={"completion_tokens": 7, "prompt_tokens": 3})))
    said = endpoint(stub, path).translate(
        "Es ist gut.", [SegmentPair("Eins.", "One.", "x"), SegmentPair("Zwei.", "Two.", "y")]
    )
    assert (said.text, said.tokens) == ("It is good.", 7)
    [(where, headers, body)] = stub.asked
    assert where == "/v1/chat/completions"
    assert "Authorization" not in headers
    assert [each["role"] for each in body["messages"]] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [each["content"] for each in body["messages"][1:]] == ["Eins.", "One.", "Zwei.", "Two.", "Es ist gut."]
    assert "from de into en" in body["messages"][0]["content"]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("small", 0, 64 + 4 * 3)


def test_a_key_is_of_the_environment_and_never_in_the_clear(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret")
    endpoint(stub).translate("a")
    assert stub.asked[0][1]["Authorization"] == "Bearer secret"
    with pytest.raises(SettingError, match="unencrypted") as raised:
        ChatEndpoint(ChatSettings("http://example.org", "small"), ("de", "en"))
    assert "secret" not in str(raised.value)
    ChatEndpoint(ChatSettings("https://example.org", "small"), ("de", "en"))
    monkeypatch.setenv(KEY, "a\nb")
    with pytest.raises(SettingError, match="characters that a header cannot have"):
        endpoint(stub)


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (404, b"no \x1b[31mmodel", "answered 404: no .*Check the URL"),
        (401, b"{}", f"A key is taken from {KEY}"),
        (302, b"", "answered 302"),
        (200, b"<html>", "expected an answer of chat/completions"),
        (200, b"[" * 5000, "cannot be read"),
        (200, b'{"choices": []}', "there is no choice"),
        (200, b'{"choices": [{"message": {"content": null}}]}', "cannot be read"),
        (200, b'{"choices": [{"message": {"content": 5}}]}', "cannot be read"),
        (200, b"[]", "cannot be read"),
        (200, saying("a", usage={"completion_tokens": "many"}), "cannot be read"),
    ],
)
def test_other_answers_are_errors_in_words(stub: Stub, status: int, content: bytes, message: str) -> None:
    stub.answers.append((status, content))
    with pytest.raises(ServiceError, match=message) as raised:
        endpoint(stub).translate("a")
    assert "\x1b" not in str(raised.value)


def test_busy_endpoints_are_asked_again_but_not_for_ever(stub: Stub) -> None:
    stub.answers += [(429, b""), (503, b""), (200, saying("b"))]
    assert endpoint(stub).translate("a").text == "b"
    stub.answers += [(503, b"no")] * 3
    with pytest.raises(ServiceError, match="answered 503"):
        endpoint(stub).translate("a")
    assert len(stub.asked) == 6


def test_an_answer_is_bounded(stub: Stub) -> None:
    stub.answers.append((200, saying("x" * 50_000)))
    assert len(endpoint(stub).translate("a").text) == 20_000
    stub.answers.append((200, saying("x" * 2000)))
    with pytest.raises(ServiceError, match="more than"):
        endpoint(stub, max_answer_bytes=1000).translate("a")


def test_nobody_there_and_nobody_answering(stub: Stub) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        place = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServiceError, match=r"no answer within 0\.2 s"):
            ChatEndpoint(ChatSettings(place, "small"), ("de", "en"), 0.2).translate("a")
    with pytest.raises(ServiceError, match=r"cannot be reached.*Is an endpoint running there"):
        ChatEndpoint(ChatSettings(place, "small"), ("de", "en")).translate("a")


def test_how_one_is_named() -> None:
    assert parse_system("llm=http://h:1/v1,model=m") == System("llm", other=ChatSystem("http://h:1/v1", "m"))
    assert parse_system("http://h,model=m").name == "llm"
    shown = parse_system("five=https://h,model=m,store=x/it.store,examples=5")
    assert shown == System("five", Path("x/it.store"), other=ChatSystem("https://h", "m", 5))
    assert parse_system("llm=http://h,model=m,store=it.store").other == ChatSystem("http://h", "m", 1)
    for text, message in (
        ("llm=http://h", "which model"),
        ("llm=http://h,model=m,k=4", "is not one of model"),
        ("llm=http://h,model=m,model=n", "is not one of model"),
        ("llm=http://h,model=m,examples=2", "examples come from a memory"),
        ("llm=http://h,model=m,store=s,examples=0", "examples come from a memory"),
        ("llm=http://h,model=m,store=s,examples=many", "not a number of examples"),
        ("llm=http://h,model=m,store=s,examples=1000", "between 0 and 100"),
        ("llm=http://:80,model=m", "expected the URL"),
        ("llm=http://h:port,model=m", "expected the URL"),
    ):
        with pytest.raises(SettingError, match=message):
            parse_system(text)
    assert [each.name for each in gather_systems([], ["llm=http://h,model=m"])] == ["base", "llm"]


def test_examples_are_the_segments_that_cover_a_text(tiny: TransformerEngine, tmp_path: Path) -> None:
    pairs = [*some_pairs(20), *some_pairs(20, start=500)]
    store = Datastore.build(tmp_path / "s", pairs[:20], tiny)
    store.add(pairs[20:], tiny)
    opened = OpenStore(store)
    sources = [pairs[3].source, pairs[33].source]
    found = chosen_pairs(tiny, opened, sources, 3)
    assert [each[-1].source for each in found] == sources  # the best stands next to the text
    chosen = opened.snapshot.source_index.choose([each[:-1] for each in tiny.tokenizer.encode_sources(sources)], 3)
    held = [segment.pair(n) for segment in store.segments for n in range(segment.record.sentences)]
    expected = [[held[number].source for number in row[::-1]] for row in chosen.sentences.tolist()]
    assert [[each.source for each in some] for some in found] == expected
    assert chosen_pairs(tiny, opened, sources, 0) == [[], []]


@pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
def test_one_stands_beside_other_systems(
    stub: Stub, tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    pytest.importorskip("sacrebleu")
    store = Datastore.build(tmp_path / "it.store", some_pairs(20), tiny)
    text = some_pairs(4, start=100)
    systems = [
        f"zero={stub.url},model=m",
        f"one={stub.url},model=m,store={store.path},examples=1",
        f"five={stub.url},model=m,store={store.path},examples=5",
    ]
    report = evaluate(text, systems=systems, model=tiny_checkpoint, output=tmp_path / "out", device="cpu")
    assert [each.run.name for each in report.systems] == ["base", "zero", "one", "five"]
    assert report.systems[3].run.hypotheses == [each.source.strip() for each in text]  # which the stub says
    assert "store:it.store|" in report.systems[3].run.signature
    assert "|llm:m|examples:5|" in report.systems[3].run.signature
    assert [len(body["messages"]) for _, _, body in stub.asked] == [2] * 4 + [4] * 4 + [12] * 4
    opened, sources = OpenStore(store), [each.source for each in text]
    for first, count in ((0, 0), (4, 1), (8, 5)):
        for (_, _, body), chosen in zip(stub.asked[first:], chosen_pairs(tiny, opened, sources, count), strict=False):
            turns = [each["content"] for each in body["messages"][1:-1]]
            assert turns == [side for pair in chosen for side in (pair.source, pair.target)]
    again = evaluate(text, systems=systems, model=tiny_checkpoint, output=tmp_path / "out", device="cpu")
    assert all(each.run.reused for each in again.systems)
    assert len(stub.asked) == 12


@pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
def test_the_command_asks_with_none_one_and_five_examples(
    stub: Stub, tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    pytest.importorskip("sacrebleu")
    testing, command = pytest.importorskip("typer.testing"), pytest.importorskip("knnmt.cli")
    store = Datastore.build(tmp_path / "it.store", some_pairs(20), tiny)
    text = tmp_path / "test.tsv"
    text.write_text("".join(f"{each.source}\t{each.target}\n" for each in some_pairs(2, start=100)), encoding="utf-8")
    given = ["evaluate", "--pairs", str(text), "--no-base", "-m", str(tiny_checkpoint), "--device", "cpu"]
    given += ["--system", f"llm={stub.url}/v1,model=m"]
    for count in (1, 5):
        given += ["--system", f"llm-{count}={stub.url}/v1,model=m,store={store.path},examples={count}"]
    done = testing.CliRunner().invoke(command.app, given)
    assert done.exit_code == 0, done.output
    assert [len(body["messages"]) for _, _, body in stub.asked] == [2, 2, 4, 4, 12, 12]
    assert {path for path, _, _ in stub.asked} == {"/v1/chat/completions"}
    assert all(name in done.output for name in ("llm", "llm-1", "llm-5"))
