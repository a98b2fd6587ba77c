"""--source-lang and --target-lang mean the memory's languages and the model's at once."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from family_checkpoints import make_family, write_tokenizer
from knnmt.cli import app
from knnmt.errors import KnnmtError

SOURCE, TARGET = "Die Datei ist weg.", "The file is gone."
MEMORY = f"""<?xml version="1.0"?>
<tmx version="1.4"><header srclang="en"/><body><tu>
<tuv xml:lang="en-US"><seg>{TARGET}</seg></tuv><tuv xml:lang="fr"><seg>Le fichier a disparu.</seg></tuv>
<tuv xml:lang="de-DE"><seg>{SOURCE}</seg></tuv>
</tu></body></tmx>
"""


def knnmt(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(each) for each in arguments]
    with warnings.catch_warnings():
        done = CliRunner().invoke(app, command)
    if isinstance(done.exception, KnnmtError):
        return subprocess.CompletedProcess(command, 1, done.stdout, str(done.exception))
    return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random NLLB whose tokens are letters."""
    directory = make_family(tmp_path_factory.mktemp("nllb"), "m2m100", {"max_length": 60}, max_position_embeddings=64)
    write_tokenizer(directory, ["deu_Latn", "eng_Latn", "fra_Latn"])
    return directory


def test_one_pair_of_options_chooses_the_memory_s_languages_and_the_model_s(model: Path, tmp_path: Path) -> None:
    memory, store, text = tmp_path / "own.tmx", tmp_path / "store", tmp_path / "text.txt"
    memory.write_text(MEMORY, encoding="utf-8")
    text.write_text(SOURCE + "\n", encoding="utf-8")

    untold = knnmt("build", memory, "-o", store, "-m", model)
    assert untold.returncode == 1
    assert "translates between 3 languages and has to be told which: give --target-lang" in untold.stderr
    built = knnmt("build", memory, "-o", store, "-m", model, "--source-lang", "de", "--target-lang", "en", "--no-index")
    assert built.returncode == 0, built.stderr
    assert "1 sentence, " in built.stdout

    settings = ("-m", model, "-d", store, "--k", "1", "--lambda", "0.99", text)
    translated = knnmt("translate", *settings)
    assert translated.stdout == TARGET + "\n", translated.stderr
    other = knnmt("translate", "--source-lang", "de", "--target-lang", "fr", *settings)
    assert other.returncode == 1
    assert "built for de to en" in other.stderr
    assert "loaded for deu_Latn to fra_Latn" in other.stderr

    added = knnmt("add", store, memory, "-m", model)
    assert added.returncode == 0, added.stderr
    assert "added      1 sentence" in added.stdout


def test_a_language_that_the_model_lacks_is_said_before_anything_is_made(model: Path, tmp_path: Path) -> None:
    memory = tmp_path / "own.tsv"
    memory.write_text(f"{SOURCE}\t{TARGET}\n", encoding="utf-8")
    done = knnmt("adapt", memory, "-o", tmp_path / "store", "-m", model, "--source-lang", "de", "--target-lang", "it")
    assert done.returncode == 1
    assert not (tmp_path / "store").exists()
    wrong = knnmt("build", memory, "-o", tmp_path / "store", "--source-lang", "fr", "--target-lang", "en")
    assert "--source-lang 'fr': the model translates de to en" in wrong.stderr
