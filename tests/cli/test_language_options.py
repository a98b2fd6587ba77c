"""--source-lang and --target-lang mean the memory's languages and the model's at once."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knnmt.cli import app
from knnmt.errors import KnnmtError
from support.family_checkpoints import make_family, write_tokenizer

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
    assert "has 3 languages and needs to know which to use: give --target-lang" in untold.stderr
    built = knnmt(
        "build", memory, "-o", store, "-m", model, "--source-lang", "de", "--target-lang", "en", "--no-estimate"
    )
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
    wrong = knnmt("build", memory, "-o", tmp_path / "store", "-m", "de-en", "--source-lang", "fr")
    assert "--source-lang 'fr': the model translates de to en" in wrong.stderr


def test_the_languages_of_documents_choose_those_of_a_model_of_many(model: Path, tmp_path: Path) -> None:
    unit = "<body><trans-unit id='a'><source>Die Datei</source></trans-unit></body>"
    folder, options = tmp_path / "in", ("-m", model, "--beam", "1", "--max-tokens", "4")
    folder.mkdir()

    def put(name: str, stated: str) -> Path:
        path = folder / name
        path.write_text(f"<xliff version='1.2'><file {stated}>{unit}</file></xliff>", encoding="utf-8")
        return path

    put("a.xlf", "source-language='de' target-language='en'")
    french = put("b.xlf", "source-language='de-AT' target-language='fr-CA'")
    done = knnmt("translate", folder, "--output-dir", tmp_path / "out", *options)
    assert done.returncode == 0, done.stderr
    assert "a.xlf: deu_Latn to eng_Latn, as it states (from de and to en)" in done.stderr
    assert "b.xlf: deu_Latn to fra_Latn, as it states (from de-AT and to fr-CA)" in done.stderr
    assert (tmp_path / "out" / "a.xlf").read_bytes() != (tmp_path / "out" / "b.xlf").read_bytes()

    half = put("c.xlf", "source-language='de'")
    untold = knnmt("translate", folder, "--output-dir", tmp_path / "again", *options)
    assert untold.returncode == 1
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == ["a.xlf", "b.xlf"]
    assert "c.xlf: does not state into which language it is to be translated. Give --target-lang" in untold.stderr
    told = knnmt("translate", half, "-o", tmp_path / "c.xlf", "--target-lang", "fr", *options)
    assert "c.xlf: deu_Latn to fra_Latn, as it states (from de)" in told.stderr
    against = knnmt("translate", french, "-o", tmp_path / "b.xlf", "--target-lang", "en", *options)
    assert "b.xlf: states that it goes from de-AT to fr-CA, but the model" in against.stderr
    italian = put("d.xlf", "source-language='de' target-language='it'")
    lacking = knnmt("translate", french, italian, "--output-dir", tmp_path / "out", *options)
    assert "d.xlf: its target language is it, which is not among the model's 3 languages" in lacking.stderr


def test_a_catalog_that_states_no_source_goes_from_what_its_messages_look_like(model: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "app.po"
    entries = "".join(f'msgid "The file {n} is not in the folder that you have"\nmsgstr ""\n\n' for n in range(9))
    catalog.write_text(f'msgid ""\nmsgstr "Language: fr\\n"\n\n{entries}', encoding="utf-8")
    done = knnmt("translate", catalog, "-o", tmp_path / "out.po", "-m", model, "--beam", "1", "--max-tokens", "4")
    assert done.returncode == 0, done.stderr
    assert "app.po: eng_Latn to fra_Latn, as it states (to fr)" in done.stderr
