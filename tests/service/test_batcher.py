"""Texts of many requests in common batches: turns, twins, what nobody wants, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import chain, repeat
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any

import pytest

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore
from knnmt.service.problems import Problem
from knnmt.service.scheduling import waiting_pieces
from knnmt.service.scheduling.batching import Batcher
from knnmt.translator import guarded_search
from knnmt.translator.assembly import Part
from knnmt.translator.memories import Request
from knnmt.translator.segments import Job
from knnmt.translator.session import Lane, PreparedText, Session
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.stages import OnPartialTexts, OnSegment
from knnmt.translator.translator import Translator

SETTINGS = TranslationSettings(beam=1)
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


class Watched:
    """Decoding that waits to be let go, and remembers what was decoded together."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.batches: list[list[str]] = []
        self.begun, self.go = Event(), Event()
        decode = Lane.decode

        def watched(
            lane: Lane, batches: Sequence[Sequence[Job]], found: OnSegment, growing: OnPartialTexts | None
        ) -> Iterator[list[list[Part]]]:
            [jobs] = batches
            self.batches.append([job.segment.text for job in jobs])
            self.begun.set()
            assert self.go.wait(60)
            if any("broken" in job.segment.text for job in jobs):
                raise ValueError("broken")
            return iter(list(decode(lane, batches, found, growing)))

        patched.setattr(Lane, "decode", watched)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.fixture
def batcher(tiny_translator: Translator) -> Iterator[Batcher]:
    made = Batcher(tiny_translator, batch=4, cached=8)
    yield made
    made.close()


def requests(*texts: str, store: Path | None = None) -> list[Request]:
    return [Request(text, store) for text in texts]


def queued(batcher: Batcher, count: int) -> None:
    while len(batcher._pieces) < count:
        time.sleep(0.001)


def test_a_short_request_does_not_wait_for_a_long_one(batcher: Batcher, watched: Watched) -> None:
    first = batcher.submit(requests("a"), SETTINGS)
    assert watched.begun.wait(60)
    texts = [f"lang {number}" for number in range(12)]  # if 16 waited, no more texts of this client would be cut
    long = batcher.submit(requests(*texts), SETTINGS)
    queued(batcher, 12)
    short = batcher.submit(requests("kurz 1"), SETTINGS)
    queued(batcher, 13)
    watched.go.set()
    wait([*first, *long, *short])
    assert "kurz 1" in watched.batches[1]
    assert sorted(text for batch in watched.batches for text in batch) == sorted(["a", "kurz 1", *texts])


def test_a_batch_is_of_one_length(batcher: Batcher, watched: Watched) -> None:
    first = batcher.submit(requests("a"), SETTINGS)
    assert watched.begun.wait(60)
    texts = [letter * length for letter, length in zip("abcdefgh", [2, 30, 3, 29, 2, 30, 3, 29], strict=True)]
    rest = batcher.submit(requests(*texts), SETTINGS)
    queued(batcher, 8)
    watched.go.set()
    wait([*first, *rest])
    assert [sorted({len(text) > 9 for text in batch}) for batch in watched.batches] == [[False], [False], [True]]


def test_equal_texts_are_decoded_once(batcher: Batcher, watched: Watched) -> None:
    first = batcher.submit(requests("doppelt", "doppelt"), SETTINGS)
    assert watched.begun.wait(60)
    second = batcher.submit(requests("doppelt"), SETTINGS)
    while batcher.hits < 2:
        time.sleep(0.001)
    watched.go.set()
    wait([*first, *second])
    third = batcher.submit(requests("doppelt"), SETTINGS)
    assert len({each.result().text for each in (*first, *second, *third)}) == 1
    assert watched.batches == [["doppelt"]]
    other = batcher.submit(requests("doppelt"), TranslationSettings(beam=2))  # which is another question
    wait(other)
    assert len(watched.batches) == 2


def test_what_is_remembered_is_forgotten_when_the_store_changes(
    batcher: Batcher, tiny_translator: Translator, served_store: Path
) -> None:
    def ask() -> str:
        return batcher.submit(requests("Satz neu", store=served_store), SETTINGS)[0].result().text

    before = ask()
    assert ask() == before
    assert batcher.hits == 1
    Datastore.open(served_store).add([SegmentPair("Satz neu", "brand new", "live#1")], tiny_translator.engine)
    assert ask() == "brand new"


def test_what_nobody_wants_is_not_decoded(batcher: Batcher, watched: Watched) -> None:
    first = batcher.submit(requests("erster"), SETTINGS)
    assert watched.begun.wait(60)
    gone = batcher.submit(requests("weg 1", "weg 2"), SETTINGS)
    wanted = batcher.submit(requests("weg 2"), SETTINGS)
    queued(batcher, 2)
    for each in gone:
        each.cancel()
    watched.go.set()
    wait([*first, *wanted])
    assert watched.batches == [["erster"], ["weg 2"]]


def test_an_equal_text_after_one_that_nobody_wants_is_decoded(batcher: Batcher, watched: Watched) -> None:
    first = batcher.submit(requests("erster"), SETTINGS)
    assert watched.begun.wait(60)
    [gone] = batcher.submit(requests("weg"), SETTINGS)
    queued(batcher, 1)
    gone.cancel()
    watched.go.set()
    wait(first)
    wait(batcher.submit(requests("anderer"), SETTINGS))  # by then it was dropped
    [wanted] = batcher.submit(requests("weg"), SETTINGS)
    assert wanted.result(60).source == "weg"


def test_a_client_with_much_lets_others_go_first(batcher: Batcher, watched: Watched) -> None:
    """Also if its texts are in many requests, and theirs come later."""
    first = batcher.submit(requests("a"), SETTINGS)
    assert watched.begun.wait(60)
    much = [
        batcher.submit(requests(*(f"viel {request} {number}" for number in range(10))), SETTINGS, client="greedy")
        for request in range(10)
    ]
    others = [batcher.submit(requests(f"wenig {name}"), SETTINGS, client=name) for name in "xyz"]
    queued(batcher, 19)  # no more texts of a client are cut than are needed soon
    watched.go.set()
    wait([*first, *(each for texts in much for each in texts), *(each for texts in others for each in texts)])
    assert {"wenig x", "wenig y", "wenig z"} <= {text for batch in watched.batches[1:3] for text in batch}
    assert len({text for batch in watched.batches for text in batch}) == 104


def test_a_batch_has_a_segment_of_every_client_before_a_second_one(batcher: Batcher, watched: Watched) -> None:
    """Although segments of the first client are more similar in length."""
    first = batcher.submit(requests("a"), SETTINGS)
    assert watched.begun.wait(60)
    much = batcher.submit(requests(*(f"viel {number}" for number in range(8))), SETTINGS, client="greedy")
    queued(batcher, 8)
    others = [batcher.submit(requests(f"wenig {name} " + "und " * 3), SETTINGS, client=name) for name in "xyz"]
    queued(batcher, 11)
    watched.go.set()
    wait([*first, *much, *(each for texts in others for each in texts)])
    assert sorted(text.split()[0] for text in watched.batches[1]) == ["viel", "wenig", "wenig", "wenig"]


def test_a_client_pays_for_what_took_longer_than_it_seemed(
    tiny_translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, decode = list[str](), Lane.decode

    def slow(
        lane: Lane, batches: Sequence[Sequence[Job]], found: OnSegment, growing: OnPartialTexts | None
    ) -> Iterator[list[list[Part]]]:
        [jobs] = batches
        decoded.append(jobs[0].segment.text)
        time.sleep(0.5 if "langsam" in decoded[-1] else 0.02)
        return iter(list(decode(lane, batches, found, growing)))

    monkeypatch.setattr(Lane, "decode", slow)
    batcher = Batcher(tiny_translator, batch=1, cached=0)
    try:
        wait(batcher.submit(requests(*(f"davor {number}" for number in range(4))), SETTINGS, client="early"))
        both = [
            batcher.submit(requests(*(f"{word} {number}" for number in range(4))), SETTINGS, client=word)
            for word in ("langsam", "schnell")
        ]
        wait([each for texts in both for each in texts])
    finally:
        batcher.close()
    words = [text.split()[0] for text in decoded if "davor" not in text]
    second = words.index("langsam", words.index("langsam") + 1)
    assert words[:second].count("schnell") >= 2


def test_equal_texts_of_a_client_far_behind_keep_nobody_waiting(batcher: Batcher, watched: Watched) -> None:
    first = batcher.submit(requests("a"), SETTINGS)
    assert watched.begun.wait(60)
    much = batcher.submit(requests(*(f"viel {number}" for number in range(40)), "beide"), SETTINGS, client="greedy")
    queued(batcher, 40)
    wanted = batcher.submit(requests("beide"), SETTINGS, client="other")
    queued(batcher, 42)
    watched.go.set()
    wait([*first, *much, *wanted])
    assert any("beide" in batch for batch in watched.batches[1:3])


def test_a_batch_has_a_limit_by_cost(tiny_translator: Translator, watched: Watched) -> None:
    """Rows and steps count: wide beams and long segments make batches of fewer segments."""
    batcher = Batcher(tiny_translator, batch=4, cached=0)
    try:
        first = batcher.submit(requests("a"), SETTINGS)
        assert watched.begun.wait(60)
        wide = TranslationSettings(beam=16, split_sentences=False)
        texts = [f"{letter} " * 15 for letter in "abcdefgh"]  # of 31 tokens
        costly = batcher.submit(requests(*texts), wide)
        queued(batcher, 8)
        narrow = batcher.submit(requests(*(each.upper() for each in texts)), SETTINGS)
        queued(batcher, 16)
        watched.go.set()
        wait([*first, *costly, *narrow])
        assert sorted(len(batch) for batch in watched.batches[1:]) == [1] * 8 + [4, 4]
    finally:
        batcher.close()


def test_costly_segments_leave_a_worker_to_others(tiny_translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, decode, begins = Event(), Event(), Lane.decode, list[str]()

    def held(
        lane: Lane, batches: Sequence[Sequence[Job]], found: OnSegment, growing: OnPartialTexts | None
    ) -> Iterator[list[list[Part]]]:
        [jobs] = batches
        begins.append(jobs[0].segment.text[:5])
        if begins[-1] == "lange":
            begun.set()
            assert go.wait(60)
        return iter(list(decode(lane, batches, found, growing)))

    batcher = Batcher(tiny_translator, batch=1, cached=0, workers=2)
    monkeypatch.setattr(Lane, "decode", held)
    wide = TranslationSettings(beam=16, split_sentences=False)
    try:
        long = [batcher.submit(requests(f"langer Text {letter} " + "ja " * 8), wide, client=letter) for letter in "ab"]
        assert begun.wait(60)
        for number in range(3):
            assert batcher.submit(requests(f"kurz {number}"), SETTINGS, client="c")[0].result(60).error is None
        assert begins.count("lange") == 1
        go.set()
        assert all(each.result(60).error is None for texts in long for each in texts)
    finally:
        go.set()
        batcher.close()


def test_short_texts_are_cut_while_a_long_one_is(tiny_translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, prepare = Event(), Event(), Session.prepare

    def held(session: Session, asked: Sequence[Request]) -> list[PreparedText]:
        if any(len(str(each.text)) > 10_000 for each in asked):
            begun.set()
            assert go.wait(60)
        return prepare(session, asked)

    monkeypatch.setattr(Session, "prepare", held)
    batcher = Batcher(tiny_translator, batch=4, cached=0)
    try:
        long = [batcher.submit(requests(letter * 12_000), SETTINGS, client=letter) for letter in "xyz"]
        assert begun.wait(60)
        assert batcher.submit(requests("kurz"), SETTINGS, client="other")[0].result(60).error is None
        go.set()
        wait([each for texts in long for each in texts])
    finally:
        go.set()
        batcher.close()


def test_a_costly_batch_gives_way_while_others_wait(
    tiny_translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches of others are decoded at the same time beside it, and it pauses after its steps until they are."""
    begun, go, decode, both, steps = Event(), Event(), Lane.decode, Barrier(2, timeout=60), list[float]()

    def held(
        lane: Lane, batches: Sequence[Sequence[Job]], found: OnSegment, growing: OnPartialTexts | None
    ) -> Iterator[list[list[Part]]]:
        [jobs] = batches
        if "lang" in jobs[0].segment.text:
            begun.set()
            assert growing is not None
            while not go.wait(0.01):
                began = time.perf_counter()
                growing(dict)
                steps.append(time.perf_counter() - began)
        elif "kurz" in jobs[0].segment.text:
            both.wait()
            time.sleep(0.5)
        return iter(list(decode(lane, batches, found, growing)))

    batcher = Batcher(tiny_translator, batch=1, cached=0, workers=2)
    monkeypatch.setattr(Lane, "decode", held)
    wide = TranslationSettings(beam=16, split_sentences=False)
    try:
        long = batcher.submit(requests("langer Text " + "ja " * 8), wide, client="long")
        assert begun.wait(60)
        short = [batcher.submit(requests(f"kurz {number}"), SETTINGS, client=number) for number in range(20)]
        wait([each for texts in short for each in texts])
        go.set()
        wait(long)
        assert max(steps) > 0.1
    finally:
        go.set()
        batcher.close()


@pytest.mark.parametrize(("others", "expected"), [([0], 0.0), ([6], 0.6), ([50], 1.0), ([6, 6, 6, 0], 0.15)])
def test_a_costly_batch_pauses_for_its_step_times_the_number_of_others(
    others: list[int], expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """others: whenever it looks, the last one for ever. Steps take 0.1 s."""
    now, looks = 0.0, chain(others, repeat(others[-1]))

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(waiting_pieces, "time", SimpleNamespace(perf_counter=lambda: now, sleep=sleep))
    piece: Any = SimpleNamespace(text=SimpleNamespace(abandoned=False))
    grow = waiting_pieces.giving_way([piece], lambda: next(looks), None)
    now += 0.1
    grow(dict)
    assert now - 0.1 == pytest.approx(expected)


def test_a_costly_batch_that_nobody_wants_ends(tiny_translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended, go, decode = Event(), Event(), Event(), Lane.decode

    def watched(
        lane: Lane, batches: Sequence[Sequence[Job]], found: OnSegment, growing: OnPartialTexts | None
    ) -> Iterator[list[list[Part]]]:
        begun.set()
        assert go.wait(60)
        try:
            return iter(list(decode(lane, batches, found, growing)))
        except Exception:
            ended.set()
            raise

    batcher = Batcher(tiny_translator, batch=1, cached=0)
    monkeypatch.setattr(Lane, "decode", watched)
    try:
        wide = TranslationSettings(beam=16, split_sentences=False)
        [long] = batcher.submit(requests("ein langer Text " + "ja " * 8), wide)
        assert begun.wait(60)
        long.cancel()
        go.set()
        assert ended.wait(60)
        assert batcher.submit(requests("kurz"), SETTINGS)[0].result(60).error is None
        assert batcher.waiting == 0
    finally:
        go.set()
        batcher.close()


def test_what_is_refused_at_the_end_is_not_waited_for(tiny_translator: Translator, watched: Watched) -> None:
    batcher = Batcher(tiny_translator, batch=4, cached=0)
    first = batcher.submit(requests("a"), SETTINGS)
    assert watched.begun.wait(60)
    more = batcher.submit(requests(*(f"noch {number}" for number in range(400))), SETTINGS)
    more[0].cancel()
    batcher.refuse()
    for each in (*first, *more[1:]):
        with pytest.raises(Problem, match="stopped"):
            each.result(60)
    watched.go.set()
    batcher.close()
    assert watched.batches == [["a"]]


def test_a_text_that_breaks_decoding_breaks_no_other(batcher: Batcher, watched: Watched) -> None:
    first = batcher.submit(requests("a"), SETTINGS)
    assert watched.begun.wait(60)
    broken, sound = batcher.submit(requests("broken", "ganzes"), SETTINGS)
    queued(batcher, 2)
    watched.go.set()
    wait([*first, broken, sound])
    assert isinstance(broken.exception(), ValueError)
    assert sound.result().error is None


def test_a_text_is_answered_when_it_is_done_and_others_are_not(
    batcher: Batcher, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is told twice, or breaks the batch after that, breaks no text that was answered."""
    first = batcher.submit(requests("a"), SETTINGS)
    assert watched.begun.wait(60)
    answered, decode = Event(), Lane.decode

    def one_early(
        lane: Lane, batches: Sequence[Sequence[Job]], found: OnSegment, growing: OnPartialTexts | None
    ) -> Iterator[list[list[Part]]]:
        [jobs] = batches
        [done] = decode(lane, batches, lambda *_: None, growing)
        if len(jobs) > 1:
            found(0, done[0])
            assert answered.wait(60)
            raise ValueError("later")
        return iter([done])

    early, late = batcher.submit(requests("kurz", "lang"), SETTINGS)
    queued(batcher, 2)
    monkeypatch.setattr(Lane, "decode", one_early)
    watched.go.set()
    text = early.result(60)
    assert not late.done()
    answered.set()
    assert late.result(60).error is None
    assert early.result() is text
    wait(first)
    assert batcher.waiting == 0


def test_closing_ends_what_was_asked_for(tiny_translator: Translator) -> None:
    batcher = Batcher(tiny_translator, batch=4, cached=0)
    asked = batcher.submit(requests(*(f"noch {number}" for number in range(9))), SETTINGS)
    batcher.close()
    assert all(each.done() and each.result().error is None for each in asked)
    with pytest.raises(Problem, match="stopped"):
        batcher.submit(requests("a"), SETTINGS)


def test_two_batches_are_decoded_at_the_same_time(tiny_translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes while a batch is decoded does not wait for its end; and a text may have segments in both."""
    begun = {name: Event() for name in ("lang", "kurz")}
    go, decode = Event(), Lane.decode

    def held(
        lane: Lane, batches: Sequence[Sequence[Job]], found: OnSegment, growing: OnPartialTexts | None
    ) -> Iterator[list[list[Part]]]:
        [jobs] = batches
        name = jobs[0].segment.text[:4]
        begun[name].set()
        assert name == "kurz" or go.wait(60)
        return iter(list(decode(lane, batches, found, growing)))

    batcher = Batcher(tiny_translator, batch=4, cached=0, workers=2)
    monkeypatch.setattr(Lane, "decode", held)
    try:
        [first] = batcher.submit(requests("lang eins"), SETTINGS)
        assert begun["lang"].wait(60)
        [second] = batcher.submit(requests("kurz zwei"), SETTINGS)
        assert second.result(60).error is None
        assert not first.done()
        go.set()
        assert first.result(60).error is None
    finally:
        go.set()
        batcher.close()
    assert (batcher.waiting, batcher._busy) == (0, 0)


@pytest.mark.parametrize("beam", [1, 3])
def test_what_two_workers_find_is_what_one_finds(tiny_translator: Translator, served_store: Path, beam: int) -> None:
    """Texts of one and of many segments, so that segments of a text are decoded by both."""
    settings = TranslationSettings(beam=beam, max_tokens=12)
    texts = [
        " ".join(f"Satz {letter} {'wort ' * number}." for number in range(1 + 2 * (place % 3))) + " ja" * (place % 7)
        for place, letter in enumerate("abcdefghijklmnopqrst")
    ]
    asked = [Request(text, served_store if number % 3 else None) for number, text in enumerate(texts)]
    alone, both = (Batcher(tiny_translator, 4, 0, workers=workers) for workers in (1, 2))
    expected = [each.result(60).text for each in alone.submit(asked, settings)]
    alone.close()
    with ThreadPoolExecutor(4) as clients:
        shares = [list(range(first, len(asked), 4)) for first in range(4)]
        sent = [clients.submit(both.submit, [asked[place] for place in share], settings) for share in shares]
        for share, futures in zip(shares, sent, strict=True):
            found = [each.result(60).text for each in futures.result()]
            assert found == [expected[place] for place in share]
    both.close()
    assert both.waiting == 0


def test_what_waits_is_shared_among_workers_that_are_free(tiny_translator: Translator, watched: Watched) -> None:
    batcher = Batcher(tiny_translator, batch=4, cached=0, workers=2)
    firsts = batcher.submit(requests("a"), SETTINGS) + batcher.submit(requests("b"), SETTINGS)
    while len(watched.batches) < 2:
        time.sleep(0.001)
    rest = batcher.submit(requests(*(f"rest {number}" for number in range(3))), SETTINGS)
    queued(batcher, 3)
    watched.go.set()
    wait([*firsts, *rest])
    batcher.close()
    assert sorted(text for batch in watched.batches for text in batch) == ["a", "b", "rest 0", "rest 1", "rest 2"]
    assert watched.batches[:2] == [["a"], ["b"]]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("with_store", [False, True])
def test_what_is_found_early_is_what_is_found(
    tiny_translator: Translator, served_store: Path, beam: int, with_store: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_search, "content_faults", lambda *_: [])  # or nonsense is tried again
    texts = [
        "Satz",
        "etwas %s ganz anderes 12",
        "noch ein langer Text, der nicht bald endet",
        "a <b>fetter</b> Text",
        "Wort",
    ]
    asked = requests(*texts, store=served_store if with_store else None)
    begun = tiny_translator.session(beam=beam, n_best=beam, on_error="continue").prepare(asked)
    jobs = [job for text in begun for job in text.jobs]
    told: dict[int, list[Part]] = {}

    def hear(number: int, parts: list[Part]) -> None:
        assert number not in told
        told[number] = parts

    lane = begun[0].lane
    expected = next(lane.decode([jobs]))
    assert [[part.text for part in parts] for parts in next(lane.decode([jobs], hear))] == [
        [part.text for part in parts] for parts in expected
    ]
    assert told
    for number, parts in told.items():
        assert [(part.marked, part.hypothesis.tokens, part.coverage) for part in parts] == [
            (part.marked, part.hypothesis.tokens, part.coverage) for part in expected[number]
        ]
