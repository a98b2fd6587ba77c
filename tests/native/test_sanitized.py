"""The crafted files and the codes of keys, with compiled code that says when it reads or writes where it must not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from knnmt import native

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "knnmt"
CRAFTED = ["datastore/test_crafted.py", "index/test_crafted_index.py", "engine/test_crafted_checkpoint.py"]
OTHERS = ["retrieval/test_key_codes.py"]  # of keys, queries and directions of all kinds
FLAGS = ["-std=c++17", "-O1", "-g", "-fPIC", "-pthread", "-march=native", "-w"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
REPORT = "report"
# An index with an id that no entry has, handed to compiled code past all checks.
BEYOND = """
import sys
import torch
from support.index_stores import clustered, write_store
from knnmt.index.entries import Entries
from knnmt.index.faiss_index import FaissIndex, load_faiss
from knnmt.index.kinds import KINDS
from pathlib import Path
from knnmt import native

assert sys.argv[1] in native.library()._name
faiss = load_faiss()
index = FaissIndex.train_and_add(Entries(write_store(Path(sys.argv[2]), [clustered(1500)])), KINDS["pq4"])
queries = torch.from_numpy(clustered(8, seed=3))
index.search(queries, 4)
print("sound", flush=True)
for number in range(index._lists.nlist):
    size = index._lists.invlists.list_size(number)
    faiss.rev_swig_ptr(index._lists.invlists.get_ids(number), size)[:] += 100_000
index.search(queries, 4)
"""


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The package with a sanitized build of its compiled code, and the environment in which that runs."""
    compiler = os.environ.get("CXX") or "c++"
    if shutil.which(compiler) is None:
        pytest.skip("there is no C++ compiler")
    place = tmp_path_factory.mktemp("sanitized")
    package = place / "knnmt"
    package.mkdir()
    for path in PACKAGE.iterdir():
        if path.name != "native":
            (package / path.name).symlink_to(path)
    shutil.copytree(PACKAGE / "native", package / "native", ignore=shutil.ignore_patterns("*.so"))
    sources = sorted((package / "native").glob("*.cpp"))
    library = package / "native" / f"knnmt-{native.fitting_builds()[0]}.so"
    digest = f'-DKNNMT_SOURCE="{native.source_digest()}"'
    objects = [path.with_suffix(".o") for path in sources]
    for source, made in zip(sources, objects, strict=True):
        subprocess.run([compiler, *FLAGS, *SANITIZERS, digest, "-c", str(source), "-o", str(made)], check=True)
    subprocess.run([compiler, "-shared", *SANITIZERS, "-o", str(library), *map(str, objects)], check=True)
    # With the C++ library, or the sanitizer would not know what throwing an exception is.
    runtimes = [_runtime(compiler, name) for name in ("libasan.so", "libstdc++.so.6")]
    return place, {
        **os.environ,
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:log_path={place / REPORT}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={place / REPORT}",
        "PYTHONPATH": os.pathsep.join(map(str, [place, ROOT / "tests" / "index", ROOT / "tests"])),
        "OMP_NUM_THREADS": "1",
    }


def _runtime(compiler: str, name: str) -> str:
    asked = [compiler, f"-print-file-name={name}"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def reports(place: Path) -> str:
    """What sanitizers said since this was asked; pytest would have kept it to itself."""
    found = sorted(place.glob(f"{REPORT}.*"))
    said = "".join(path.read_text(errors="replace") for path in found)
    for path in found:
        path.unlink()
    return said


@pytest.mark.soak
def test_the_sanitizer_sees_what_is_read_beyond_the_entries(
    sanitized: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Or the next test would say nothing."""
    place, environment = sanitized
    command = [sys.executable, "-c", BEYOND, str(place), str(tmp_path / "s")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "sound\n", done.stderr[-3000:]
    assert done.returncode != 0
    assert "AddressSanitizer" in (said := reports(place))
    assert "search.cpp" in said


@pytest.mark.soak
@pytest.mark.parametrize("tests", CRAFTED + OTHERS)
def test_whatever_it_is_given_compiled_code_reads_nothing_else(
    sanitized: tuple[Path, dict[str, str]], tests: str
) -> None:
    place, environment = sanitized
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / tests)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert reports(place) == ""
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
