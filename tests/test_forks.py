"""A process that is forked from one that has computed with several threads computes, too, and does not hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import warm

BEGIN = """
import os, sys
import knnmt.threads
from knnmt import SegmentPair, Translator
from knnmt.datastore.store import Datastore
import torch


def said(text):
    print(text, flush=True)


def forked(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


torch.set_num_threads(2)
place = sys.argv[1]
text = "Das Gerät wird mit dem Hauptschalter eingeschaltet."
"""
LOADED = """
translator = Translator(device="cpu")  # as a server does that loads before it forks its workers
for _ in range(2):
    forked(lambda: said(f"{torch.get_num_threads()} {translator.translate(text, beam=1).text}"))
said(f"{torch.get_num_threads()} {translator.translate(text, beam=1).text}")
"""
NEVER_USED = """
torch.randn(500, 500) @ torch.randn(500, 500)
forked(lambda: said(Translator(device="cpu", threads=2).translate(text, beam=1).text))
said(Translator(device="cpu").translate(text, beam=1).text)
"""
WITH_A_STORE = """
from knnmt.index.saved import build_index
translator = Translator(device="cpu")
pairs = [SegmentPair(f"Der Schalter {n} ist an.", f"Switch number {n} is on.", f"own#{n}") for n in range(40)]
store = Datastore.build(place + "/store", pairs, translator.engine)
build_index(store, "rabitq")
settings = dict(datastore=store, k=4, interpolation_weight=0.5, temperature=10.0, beam=1)
said(translator.translate(text, **settings).text)


def work():
    said(translator.translate(text, **settings).text)
    Datastore.open(store.path).add(pairs[:2], translator.engine)
    build_index(Datastore.open(store.path), "rabitq")


forked(work)
assert Datastore.open(store.path).manifest.live_sentences == 42
said(translator.translate(text, **settings).text)
"""
# As with an OpenMP that is older, or where the process is forked by something that tells Python only afterwards.
OLDER = """
from knnmt.errors import SettingError
knnmt.threads._send_home = lambda path: False
translator = Translator(device="cpu")
said(translator.translate(text, beam=1).text)


def work():
    said(translator.translate(text, beam=1).text)
    assert torch.get_num_threads() == 1
    try:
        Translator(device="cpu", threads=2)
    except SettingError as error:
        said(f"refused: {error}")
    Translator(device="cpu", threads=1)


forked(work)
assert torch.get_num_threads() == 2
Translator(device="cpu", threads=2)
"""


def lines(script: str, tmp_path: Path) -> list[str]:
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-c", BEGIN + script, str(tmp_path)]
    with warm.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        try:
            found, errors = running.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # the forked ones, too
            raise
    assert running.returncode == 0, errors
    return str(found).splitlines()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(LOADED, marks=pytest.mark.soak, id="loaded"),
        pytest.param(NEVER_USED, marks=pytest.mark.soak, id="torch"),
        pytest.param(WITH_A_STORE, id="store"),
    ],
)
def test_a_forked_process_translates(script: str, tmp_path: Path) -> None:
    if script is WITH_A_STORE:
        pytest.importorskip("faiss")
    found = lines(script, tmp_path)
    assert len(found) >= 2
    assert len(set(found)) == 1
    assert script is not LOADED or found[0].startswith("2 ")


@pytest.mark.soak
def test_where_threads_cannot_begin_anew_one_works_and_more_are_refused(tmp_path: Path) -> None:
    parents, childs, refusal = lines(OLDER, tmp_path)
    assert parents == childs
    assert refusal.startswith("refused: 2 threads were requested in a process that was forked")
    assert "by spawn" in refusal
