"""Systems that workers run: the report of an evaluation is the same but for where and how fast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from knnmt import Cluster, Datastore, TranslationSettings, Translator, evaluate
from knnmt.cli import app
from knnmt.corpus.writing import write_tsv
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import CutTranslationWarning, SettingError, StorageError
from knnmt.evaluation import systems_as_tasks
from support.datastore_pairs import some_pairs
from support.made_ray import MadeRay

pytest.importorskip("sacrebleu")
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
TEXT = some_pairs(7, start=50)


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "own.store", some_pairs(12), tiny).path


def asked(store: Path) -> dict[str, Any]:
    systems = [f"own={store},k=4,lambda=0.6,temperature=10", f"cached={store},k=4,lambda=0.6,temperature=10,cache=50"]
    return {"systems": systems, "settings": TranslationSettings(beam=2, batch_size=4), "device": "cpu", "threads": 1}


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on where and how fast it was made."""
    text: dict[str, Any] = json.loads(json.dumps(report))
    del text["machine"]
    for system in text["systems"]:
        for name in [name for name in system if "second" in name or name in ("speed", "reused")]:
            del system[name]
    return text


def test_the_report_is_that_of_one_process(
    made_ray: MadeRay,
    store: Path,
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    plain = evaluate(TEXT, model=tiny_checkpoint, output=tmp_path / "plain", **asked(store))
    told: list[str] = []
    cluster = Cluster(workers=2)
    found = evaluate(
        TEXT, model=tiny_checkpoint, output=tmp_path / "ray", cluster=cluster, tell=told.append, **asked(store)
    )
    assert without_times(found.as_json()) == without_times(plain.as_json())
    assert found.machine.endswith("1 thread; several systems at a time")
    assert [line.split(", ")[1] for line in told] == [f"{number} of 3 systems" for number in (1, 2, 3)]
    assert {line.split(", ")[0] for line in told} == {"base: done", "own: done", "cached: done"}
    for name in ("base.txt", "own.txt", "cached.txt", "segments.tsv"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_what_is_done_is_not_done_again(
    made_ray: MadeRay,
    store: Path,
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    told: list[str] = []
    given: dict[str, Any] = {
        "model": tiny_checkpoint,
        "output": tmp_path / "out",
        "cluster": Cluster(),
        "tell": told.append,
    }
    made_ray.dying = 3
    evaluate(TEXT, **{**asked(store), "systems": asked(store)["systems"][:1]}, **given)
    evaluate(TEXT, **asked(store), **given)
    lines = [line.split(",")[0] for line in told]
    assert set(lines[:2]) == {"base: done", "own: done"}
    assert set(lines[2:]) == {"base: was done before", "own: was done before", "cached: done"}
    # without a cluster it goes on from there, too
    again = evaluate(TEXT, model=tiny_checkpoint, output=tmp_path / "out", **asked(store))
    assert all(each.run.reused for each in again.systems)


def test_warnings_of_workers_are_heard_here(made_ray: MadeRay, store: Path, tiny_checkpoint: Path) -> None:
    given = {**asked(store), "settings": TranslationSettings(beam=1), "model": tiny_checkpoint}
    heard = []
    ways: list[dict[str, Any]] = [{}, {"cluster": Cluster()}]
    for more in ways:
        with pytest.warns(CutTranslationWarning) as caught:
            evaluate(TEXT, **given, **more)
        heard.append(sorted(str(each.message) for each in caught))
    assert heard[0] == heard[1]


def test_a_worker_that_sees_something_else_is_refused(
    made_ray: MadeRay,
    store: Path,
    tiny_checkpoint: Path,
    make_checkpoint: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SettingError, match=r"give its name or directory instead of a translator"):
        evaluate(TEXT, store, model=Translator(tiny_checkpoint, device="cpu"), cluster=Cluster())
    other = str(make_checkpoint(decoder_ffn_dim=40))
    with monkeypatch.context() as patched:
        patched.setattr(systems_as_tasks, "model_for_all", lambda _: other)
        with pytest.raises(SettingError, match=r"a worker has another model there"):
            evaluate(TEXT, model=tiny_checkpoint, cluster=Cluster(), device="cpu")
    real = systems_as_tasks.run_system

    def elsewhere(task: Any, system: Any) -> Any:
        (tmp_path / "out").rename(tmp_path / "away")
        return real(task, system)

    monkeypatch.setattr(systems_as_tasks, "run_system", elsewhere)
    with pytest.raises(
        StorageError, match=r"a worker does not see this directory, which the evaluation made\. Put --output"
    ):
        evaluate(TEXT, model=tiny_checkpoint, cluster=Cluster(), device="cpu", output=tmp_path / "out")


def test_the_command_has_the_options(
    made_ray: MadeRay,
    store: Path,
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    write_tsv(tmp_path / "text.tsv", TEXT)
    given = ["evaluate", "--pairs", str(tmp_path / "text.tsv"), "-d", str(store), "-m", str(tiny_checkpoint)]
    ran = CliRunner().invoke(app, [*given, "--beam", "2", "--device", "cpu", "--ray", "auto", "--workers", "2"])
    assert ran.exit_code == 0, ran.output
    assert "own.store: done, " in ran.stderr
    assert "several systems at a time" in ran.stdout
    refused = CliRunner().invoke(app, [*given, "--workers", "2"])
    assert "need --ray ADDRESS" in str(refused.exception)
