"""Teams of threads (team.cpp): all parts are done once, whoever calls, with any number of threads, and after a fork."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from knnmt import native
from knnmt.engine.product import CompiledProduct, Int8Projection
from support import warm

HERE = Path(__file__).parent
NATIVE = Path(native.__file__).parent


def stressed(tmp_path: Path, turns: int, forks: bool, *flags: str) -> str:
    """The output of team_under_stress.cpp."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    program = tmp_path / "stress"
    sources = [str(HERE / "team_under_stress.cpp"), str(NATIVE / "team.cpp")]
    options = ["-std=c++17", "-O1", "-g", "-pthread", f"-I{NATIVE}", *flags]
    subprocess.run([compiler, *options, *sources, "-o", str(program)], check=True)
    command = [str(program), str(turns), str(int(forks))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="compiled code is for Linux")
def test_every_part_is_done_once(tmp_path: Path) -> None:
    assert stressed(tmp_path, 300, True) == "sound\n"


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="compiled code is for Linux")
def test_no_thread_reads_what_another_writes(tmp_path: Path) -> None:
    assert stressed(tmp_path, 300, False, "-fsanitize=thread") == "sound\n"
    assert stressed(tmp_path, 1000, True) == "sound\n"


# The compiled functions that use them --------------------------------------------------------------------------------


@pytest.fixture
def product() -> CompiledProduct:
    if native.library() is None:
        pytest.skip("there is no compiled code")
    found = Int8Projection(torch.randn(515, 96), torch.randn(515), fine=True).compiled
    assert found is not None
    return found


def test_threads_share_and_change_their_number(product: CompiledProduct) -> None:
    x = torch.randn(37, 96)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = product.log_probabilities(x)
    stop = threading.Event()

    def change() -> None:
        count = 0
        while not stop.wait(0.001):
            count += 1
            torch.set_num_threads(1 + count % 5)

    def call(_: int) -> list[Tensor]:
        return [product.log_probabilities(x) for _ in range(50)]

    changing = threading.Thread(target=change)
    changing.start()
    try:
        with ThreadPoolExecutor(4) as callers:
            found = [each for some in callers.map(call, range(8)) for each in some]
    finally:
        stop.set()
        changing.join()
        torch.set_num_threads(before)
    assert all(torch.equal(each, expected) for each in found)


COUNTING = """
import os, threading
from pathlib import Path
import torch
from knnmt.engine.product import float_product

def threads():
    tasks = Path("/proc/self/task").iterdir()
    return [(task / "comm").read_text().strip() for task in tasks].count("knnmt")

product = float_product(torch.full((640, 64), 0.1), None)  # no float16 is 0.1
x = torch.ones(8, 64)
for count in (1, 3, 2, 3):
    torch.set_num_threads(count)
    product(x)
    print("with", count, "there are", threads(), flush=True)
for _ in range(2):
    if os.fork() == 0:
        torch.set_num_threads(2)
        none = threads()
        product(x)
        print("forked", none, threads(), flush=True)
        os._exit(0)
    os.wait()
    product(x)
print("in the end", threads(), flush=True)
def last():  # a thread that still computes when the process ends
    while True:
        product(x)
threading.Thread(target=last, daemon=True).start()
"""


def test_threads_are_made_when_they_are_needed_and_kept(product: CompiledProduct) -> None:
    done = warm.run([sys.executable, "-c", COUNTING], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    counted = [f"with {count} there are {others}" for count, others in ((1, 0), (3, 2), (2, 2), (3, 2))]
    assert done.stdout.splitlines() == [*counted, "forked 0 1", "forked 0 1", "in the end 2"]
