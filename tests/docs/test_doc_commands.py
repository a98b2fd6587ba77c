"""Every command of the documentation is run as it is written there, or named here with the reason why it is not.

The commands and Python examples of a page run in their order, in one directory, on small memories of our own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from knnmt.cli import app
from knnmt.evaluation.systems import parse_system
from support import ROOT, warm
from support.commands import all_commands
from support.our_files import write_files
from support.pages import Block, Command, blocks, commands, compare, inline_code, pages_with_commands

PAGES = pages_with_commands()
LANGUAGES = {"console", "python", "mermaid", "text"}  # of blocks: `text` is nothing to type
LONG_PAGES = {"tuning.md", "own-model-and-memory.md"}
CHECKOUT, OUR_FILES = "a checkout", "a directory with our files"
IN_SOAK = {  # what takes long, or needs a network: where `make soak` runs it
    "make demo": CHECKOUT,
    "make bench": CHECKOUT,
    "make docs": CHECKOUT,
    "make bench-retrieval": CHECKOUT,
    "pip install '.[documents,evaluate,faiss,serve]'": CHECKOUT,
    "pip install 'knnmt[evaluate]'": CHECKOUT,
    "pip install 'knnmt[serve]'": CHECKOUT,
    "pip install 'knnmt[hub,transformers]'": CHECKOUT,
    "pip install 'knnmt[lab]'": CHECKOUT,
    "knnmt bench --source fragen.txt -d projekt.store": OUR_FILES,
    'knnmt bench -s fragen.txt -d projekt.store --system "cached=projekt.store,cache=6" --system "small=klein.store" '
    "-o speed/": OUR_FILES,
}
REAL_TEXT = {"make bench", "make bench-retrieval"}  # measure on it
COMET = "tests/lab/test_comet.py makes such an environment in `make soak`, with a tiny checkpoint"
RAY = "`make test-ray` builds and searches on clusters"
COPIED = "tests/datastore/test_copying.py copies to other places"
NOT_RUN = {  # and why; sizes are of models that would be fetched
    "make test": "runs this",
    "make soak": "runs this",
    "make fuzz": "tests/fuzzing/test_fuzzing.py runs the same script in `make soak`",
    "make format": "changes files",
    "make serve": "does not end",
    "wait": "waits for those before it",
    "make test-cuda": "needs a GPU",
    "make test-ray": "starts clusters",
    "pip install 'knnmt[ray]'": "`make test-ray` does",
    "knnmt build projekt.tmx -o ray.store --ray local --workers 2": RAY,
    "knnmt build gross.tmx -o /shared/gross.store --ray auto --gpus-per-worker 1": RAY,
    "knnmt shard-set 10.0.0.5:/data/a.store 10.0.0.6:/data/b.store -o menge2.store --ray auto": RAY,
    "knnmt adapt gross.tmx -o /shared/gross.store --ray ray://head:10001 --workers 8": RAY,
    "knnmt build gross.tmx -o gross.store --ray auto --storage s3://firma/parts": RAY,
    "knnmt copy projekt.store file:///shared/ablage/projekt": COPIED,
    "knnmt copy file:///shared/ablage/projekt kopie.store": COPIED,
    "knnmt copy projekt.store s3://firma/stores/projekt": COPIED,
    "make test-dialects": "fetches half a gigabyte of packages",
    "python3 -m venv comet-env": COMET,
    "comet-env/bin/pip install unbabel-comet 'setuptools<81'": COMET,
    "knnmt evaluate --pairs test.tmx -d projekt.store --comet-python comet-env/bin/python": COMET,
    'python -c "from huggingface_hub import snapshot_download; '
    "snapshot_download('Helsinki-NLP/opus-mt-de-en', local_dir='opus-de-en')\"": "300 MB",
    "knnmt translate -m facebook/nllb-200-distilled-600M --source-lang de --target-lang fr fragen.txt": "2.5 GB",
    "knnmt adapt projekt.tmx -m facebook/m2m100_418M --source-lang de --target-lang en -o projekt.store": "2 GB",
}
ELSEWHERE = {  # tests of their own run these, in shapes that take seconds
    "knnmt serve ": "tests/service",
    "curl ": "tests/docs/test_service_guide.py",
    "knnmt reproduce": "tests/lab/reproduction",
    "python -m knnmt_lab.reproduction": "tests/lab/reproduction",
}
VERBS = all_commands()
_MADE = re.compile(r'\b(?:build|adapt)\((?:[^()]+, )?"([^"]+\.store)"')


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _in_its_time(page: Path) -> Any:
    """A page as a parameter; `make soak` runs those that take longest."""
    return pytest.param(page, marks=pytest.mark.soak) if page.name in LONG_PAGES else page


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our files, and the stores that pages use without making them."""
    place = tmp_path_factory.mktemp("prepared")
    write_files(place)
    with chdir(place):  # so that origins are as a reader's
        run_knnmt(["build", "projekt.tmx", "-o", "projekt.store", "--for-fast"])
    for store in ("anderes.store", "klein.store"):
        shutil.copytree(place / "projekt.store", place / store)
    return place


@pytest.fixture
def directory(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's directory: our files, and stores as they come to be used."""
    monkeypatch.setattr("knnmt.adapting.tune.CACHE_PAIRS", 1)  # beams take long
    for path in prepared.iterdir():
        if path.is_dir() and not path.is_symlink() and path.suffix != ".store":
            shutil.copytree(path, tmp_path / path.name)
        elif path.suffix != ".store":
            shutil.copy(path, tmp_path, follow_symlinks=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [_in_its_time(page) for page in PAGES], ids=name_of)
def test_what_a_page_says_to_type_works(page: Path, directory: Path, prepared: Path) -> None:
    for block in blocks(page):
        place = f"{name_of(page)}, line {block.line}"
        assert block.language in LANGUAGES, f"{place}: say what the block is, one of {sorted(LANGUAGES)}"
        if block.language == "python" and "knnmt.Client(" not in block.text:  # tests/docs/test_service_guide.py
            run_python(block, place, directory, prepared)
        elif block.language == "console":
            for command in commands(block):
                if runs_here(command):
                    check(command, f"{name_of(page)}, line {command.line}", directory, prepared)


def runs_here(command: Command) -> bool:
    return not (command.text in NOT_RUN or command.text in IN_SOAK or command.text.startswith(tuple(ELSEWHERE)))


def check(command: Command, place: str, directory: Path, prepared: Path) -> None:
    """Run it, and compare what it prints with what the page shows."""
    arguments, stdin = parsed(command.text, directory)
    made = [arguments[i + 1] for i, word in enumerate(arguments) if word in {"-o", "--output"}]
    used = [re.sub(r"^\w+=", "", word).split(",")[0] for word in arguments]
    lay_out(made, used, directory, prepared)
    if arguments[0] == "knnmt":
        said = run_knnmt(arguments[1:], stdin)
    else:
        assert arguments[0] == "python", f"{place}: {command.text!r} is neither run nor listed here"
        said = warm.run([sys.executable, *arguments[1:]], capture_output=True, text=True, check=True).stdout
    compare(command.output, said, place)


def parsed(text: str, directory: Path) -> tuple[list[str], str]:
    """The words of a command and its standard input, of `echo TEXT | COMMAND` or `COMMAND < FILE`."""
    words = shlex.shlex(text, posix=True, punctuation_chars="|<")
    words.commenters, words.whitespace_split = "", True
    arguments, stdin = list(words), ""
    if "|" in arguments:
        bar = arguments.index("|")
        assert arguments[0] == "echo", f"{text}: what is before a bar is not known here"
        stdin, arguments = f"{arguments[1]}\n", arguments[bar + 1 :]
    if "<" in arguments:
        sign = arguments.index("<")
        stdin, arguments = (directory / arguments[sign + 1]).read_text(encoding="utf-8"), arguments[:sign]
    return arguments, stdin


def lay_out(made: list[str], used: list[str], directory: Path, prepared: Path) -> None:
    """Stores that are used are there; one that is made again is not."""
    for name in {name for name in [*made, *used] if name.endswith(".store")}:
        if name in made:
            shutil.rmtree(directory / name, ignore_errors=True)
        elif not (directory / name).exists():
            shutil.copytree(prepared / name, directory / name)


def run_knnmt(arguments: list[str], stdin: str = "") -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, arguments, catch_exceptions=False, input=stdin)
    assert done.exit_code == 0, f"{arguments}: {done.output}"
    return done.output


def run_python(block: Block, place: str, directory: Path, prepared: Path) -> None:
    """Every example stands by itself; "# →" shows what a line prints. One that begins with a file's name is a file."""
    if file := re.match(r"# (\w+\.py)\n", block.text):
        (directory / file[1]).write_text(block.text, encoding="utf-8")
        return
    lay_out(_MADE.findall(block.text), re.findall(r'"([^"]+\.store)"', block.text), directory, prepared)
    with redirect_stdout(StringIO()) as printed:
        exec(compile("\n" * block.line + block.text, place.split(",")[0], "exec"), {"__name__": "example"})
    compare(re.findall(r"# → (.+)$", block.text, re.MULTILINE), printed.getvalue(), place)


def test_what_is_not_run_is_in_a_page() -> None:
    typed = {command.text for page in PAGES for block in blocks(page) for command in commands_of(block)}
    assert not {*NOT_RUN, *IN_SOAK} - typed


def commands_of(block: Block) -> list[Command]:
    return commands(block) if block.language == "console" else []


@pytest.mark.soak
@pytest.mark.parametrize("text", IN_SOAK, ids=str)
def test_long_commands_work(text: str, prepared: Path, request: pytest.FixtureRequest) -> None:
    if text in REAL_TEXT:
        request.getfixturevalue("domain_data")
    place = ROOT if IN_SOAK[text] == CHECKOUT else prepared
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-c", text], cwd=place, env={**os.environ, "PATH": path}, check=True)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_are_not_run_and_those_in_sentences_exist_with_their_options(page: Path) -> None:
    listed = [command.text for block in blocks(page) for command in commands_of(block) if not runs_here(command)]
    for code in [*inline_code(page), *listed]:
        unknown = unknown_parts(code)
        assert not unknown, f"{name_of(page)}: {code}: no {unknown}"


def unknown_parts(code: str) -> set[str]:
    """What a command names and there is not: verbs and options of ours, targets of `make`, benchmarks."""
    program, _, rest = code.partition(" ")
    first = rest.partition(" ")[0]
    options = set(re.findall(r"(?<=\s)--[a-z][a-z0-9-]*", code))
    if system := re.search(r'--system "([^"]+)"', code):
        parse_system(system[1])
    if program == "knnmt" and re.match(r"[a-z]", first):
        if first not in VERBS:
            return {first}
        return options - {name for each in VERBS[first].params for name in [*each.opts, *each.secondary_opts, "--help"]}
    if program == "make" and first:
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        return {first} - set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    if program == "python" and first.startswith("benchmarks/"):
        known = (ROOT / first).read_text(encoding="utf-8")
        return {option for option in options if f'"{option}"' not in known}
    return set()
