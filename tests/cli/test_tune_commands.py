"""Tuning a store from the command line."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import knnmt
from knnmt.adapting.tuning_by_bleu import Scored
from knnmt.adapting.tuning_by_likelihood import Compared
from knnmt.cli import app
from knnmt.compression.pca import reduce
from knnmt.config import CacheConfig, FastConfig, RetrievalConfig
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.retrieval.profiles import Profile, default_profile, read_profiles, write_profiles
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.translator.translator import Translator
from support.commands import refused, succeeds
from support.datastore_pairs import development_file, some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")


def unsound(store: Path) -> str:
    """What `knnmt verify` says of a store with problems."""
    done = CliRunner().invoke(app, ["verify", str(store)], catch_exceptions=False)
    assert done.exit_code == 1
    return done.stdout


@pytest.fixture(autouse=True)
def few_beams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model ends no sentence early, so that its beams take long."""
    monkeypatch.setattr("knnmt.adapting.tune.CACHE_PAIRS", 1)


@pytest.fixture
def store(built_store: Callable[[int], Path], tmp_path: Path) -> Path:
    return shutil.copytree(built_store(80), tmp_path / "own.store")


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    return development_file(tmp_path / "dev.tsv", 24)


def test_inspect_shows_the_settings_in_use_before_those_that_are_only_estimated(store: Path, model: list[str]) -> None:
    succeeds("index", store, *model)
    estimated = read_settings(store)["calibration_by_segment"]["temperature"]
    assert f"\nsettings    k 8, T {estimated:.4g}, λ at most " in (said := succeeds("inspect", store))
    assert "\nestimated " not in said
    write_profiles(store, {"knn": Profile(RetrievalConfig(4, 0.5, 42.31), "likelihood", 9, None)}, "knn")
    said = succeeds("inspect", store)
    assert "\nsettings    k 4, T 42.31, λ 0.5, profile knn\n" in said
    assert f"\nestimated   k 8, T {estimated:.4g}, λ at most " in said
    assert said.count("\nsettings ") == 1


def test_settings_are_chosen_reported_and_used(store: Path, dev: Path, model: list[str], tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "py.store")
    said = succeeds("tune", store, "--dev", dev, "--whole", *model)
    assert "known       3 of 27 pairs have a source that the store holds, 3 with the same target: left out\n" in said
    tunes, reported = (
        int(said.split("development ")[1].split()[0]),
        int(said.split(" for tuning; ")[1].split()[0]),
    )
    assert tunes + reported == 24
    for heading in ("  k        T  fixed λ     loss", "       τ  entries within", "reported        loss  perplexity"):
        assert heading in said
    profiles = read_profiles(store)
    assert list(profiles) == ["knn", "knn-fixed", "cache"]
    assert default_profile(store) == "knn"
    knn, fixed, cache = (profiles[name].config for name in profiles)
    assert knn.fading is not None
    assert fixed.fading is None
    assert cache.cache is not None
    assert f"τ {cache.cache.threshold:.4g} saves" in said
    assert {(each.method, each.pairs) for each in profiles.values()} == {("likelihood", tunes)}
    assert [each.loss is None for each in profiles.values()] == [False, False, True]  # forced text shows no cache's
    losses = {line.split()[0]: float(line.split()[1]) for line in said.split("perplexity")[1].splitlines()[1:6]}
    assert list(losses) == ["alone", "before", "knn", "knn-fixed", "cache"]
    assert losses["knn"] < losses["alone"]

    heard: list[str] = []
    whole = knnmt.TuningConfig(whole=True)
    found = knnmt.tune(str(copy), str(dev), whole, model=model[1], on_message=heard.append)
    assert "".join(f"{line}\n" for line in heard) == said.partition("drawn")[0].replace(str(store), str(copy))
    assert (copy / "settings.json").read_bytes() == (store / "settings.json").read_bytes()
    assert {name: each.config for name, each in profiles.items()} == found.profiles
    assert {name: round(loss, 4) for name, loss in found.losses.items()} == losses
    assert str(found).startswith(f"{copy}: knn is its default\nalone       perplexity ")

    shown = succeeds("inspect", store)
    assert f"profile     knn: {knn.signature()}, by likelihood on {tunes} pairs, default\n" in shown
    assert f"profile     cache: {cache.signature()}, by likelihood on {tunes} pairs\n" in shown
    translated = succeeds("translate", "-d", store, "--scores", *model)
    assert translated == succeeds("translate", "-d", store, "--scores", "--profile", "knn", *model)
    assert translated != succeeds("translate", "-d", store, "--scores", "--profile", "knn-fixed", *model)
    succeeds("translate", "-d", store, "--profile", "estimated", *model)


def reported(said: str) -> dict[str, float]:
    """The losses that a tuning reported."""
    rows = said.split("perplexity  settings\n")[1].split("saved")[0].splitlines()
    return {row.split()[0]: float(row.split()[1]) for row in rows}


@pytest.mark.parametrize(("name", "options"), [("own", ["--all-dev"]), ("knn", [])])
def test_what_was_there_stays_the_default_unless_something_is_better(
    store: Path, dev: Path, model: list[str], name: str, options: list[str]
) -> None:
    tune = ["tune", str(store), "--dev", str(dev), "--whole", *options, *model]
    said = succeeds(*tune, "--profile", "first")
    assert "compared    tuned settings are better: loss " in said
    assert reported(said)["first-fixed"] < reported(said)["first"]  # in text as uniform as this
    bold = read_profiles(store)["first-fixed"].config
    there = Profile(replace(bold, cache=CacheConfig(0.1)), "bleu", 7, None)
    write_profiles(store, {name: there}, default=name)
    said = succeeds(*tune)
    if "compared    tuned settings are better" in said:
        assert options  # where the text that tunes is the one reported, a λ that fades may fit it better still
        assert reported(said)["knn"] < reported(said)["before"]
        assert default_profile(store) == "knn"
        return
    before, tuned = (float(said.partition("stay: loss ")[2].split()[place]) for place in (0, 2))
    assert before < tuned
    others = [each for each in ("knn", "knn-fixed", "cache") if each != name]
    assert f"saved       profiles {', '.join(others)} with {store}; {name} stays its default\n" in said
    assert default_profile(store) == name
    assert reported(said)["knn"] == reported(said)["before"]
    profiles = read_profiles(store)
    assert profiles[name] == there
    assert replace(profiles["knn"].config, cache=None) == bold
    assert replace(profiles["cache"].config, cache=None) == bold


def test_settings_that_only_the_tuning_half_likes_are_not_the_default(
    store: Path, dev: Path, model: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knnmt.adapting.tuning_by_likelihood.Compared.of", lambda *_: Compared((2.0, 1.5), (2.1, 2.2)))
    said = succeeds("tune", store, "--dev", dev, *model)
    assert "on the reported pairs 2.1000 and 2.2000\n" in said
    assert f"with {store}; estimated stays its default\n" in said
    assert default_profile(store) is None
    assert reported(said)["segments"] == reported(said)["before"]


def test_all_of_the_text_under_another_name_without_saving_first(store: Path, dev: Path, model: list[str]) -> None:
    options = ["--dev", str(dev), "--all-dev", "--keep-known", "--whole", "--cache-loss", "0", *model]
    said = succeeds("tune", store, *options, "--no-save")
    assert "3 with the same target: kept\n" in said
    assert "development 27 pairs of " in said
    assert "for tuning; the same pairs are reported\n" in said
    assert not read_settings(store)
    succeeds("tune", store, *options, "--profile", "sure", "--pairs", "10")
    assert set(read_profiles(store)) - {"sure-cache"} == {"sure", "sure-fixed"}
    assert default_profile(store) == "sure"
    assert {each.pairs for each in read_profiles(store).values()} == {10}


def test_pairs_that_are_left_out_are_counted(store: Path, dev: Path, model: list[str]) -> None:
    with dev.open("a", encoding="utf-8") as file:
        file.write("\nnur links\t\n" + f"{'viel zu lang ' * 30}\tx\n")
    said = succeeds("tune", store, "--dev", dev, "--all-dev", "--no-save", *model)
    assert f"left out    1 of {dev}: empty line\n" in said
    assert f"left out    1 of {dev}: empty source or target\n" in said
    assert said.count("too long    1 of 25 pairs, for the model's ") == 1  # those that tune are those reported


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--temperature", "10"], "--temperature is for --method bleu"),
        (["--confirm", "--temperature", "10"], "--temperature is for --method bleu"),
        (["--sample", "10"], "--sample is for --confirm or --method bleu"),
        (["--bleu-loss", "0.2"], "--bleu-loss is for --whole --confirm"),
        (["--method", "bleu", "--bleu-loss", "0.2"], "--bleu-loss is for --whole --confirm"),
        (["--profile", ""], "cannot be called ''"),
        (["--profile", "cache"], "cannot be called 'cache', because tuning 'knn' saves"),
        (["--profile", "knn-fixed"], "cannot be called 'knn-fixed'"),
    ],
)
def test_options_without_effect_and_names_that_collide_are_refused(
    store: Path, dev: Path, options: list[str], message: str
) -> None:
    assert message in refused("tune", store, "--dev", dev, *options)


def test_bleu_decides_when_it_is_asked_to(store: Path, dev: Path, model: list[str]) -> None:
    said = succeeds("tune", store, "--dev", dev, "--whole", "--confirm", "--sample", "4", *model)
    assert "confirming  on 4 of the tuning pairs\n" in said
    assert "translating 4 of the reported pairs\n" in said
    scores = [float(line.split()[1]) for line in said.split("chosen")[1].splitlines() if line.startswith("BLEU")]
    chosen = said.split("chosen      ")[2].splitlines()[0]
    assert f"{max(scores):6.2f}" in next(line for line in said.splitlines() if line.endswith(chosen))
    found = read_profiles(store)
    assert found["knn"].config.signature() == chosen
    tunes = int(said.split("development ")[1].split()[0])
    assert {name: (each.method, each.pairs) for name, each in found.items() if name != "cache"} == {
        "knn": ("bleu", 4),
        "knn-fixed": ("likelihood", tunes),
    }


@pytest.mark.parametrize("options", [["--whole", "--confirm"], ["--method", "bleu", "--profile", "paper"]], ids=str)
def test_what_was_there_stays_if_bleu_likes_it_best(
    store: Path, dev: Path, model: list[str], options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Profile(RetrievalConfig(8, 0.33, 20.0), "bleu", 40, None)
    write_profiles(store, {"own": there}, default="own")

    def score(*given: Any) -> Iterator[Scored]:
        return (Scored(config, 50.0 if config == there.config else 10.0, 0.0) for config in given[3])

    monkeypatch.setattr("knnmt.adapting.tune.score", score)
    said = succeeds("tune", store, "--dev", dev, *options, *model)
    assert f"chosen      {there.config.signature()}, the present settings\n" in said
    assert "; own stays its default\n" in said
    assert default_profile(store) == "own"


def test_a_combiner_of_ones_own_is_tuned_by_bleu(
    store: Path, dev: Path, model: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("knnmt.adapting.tuning_by_bleu.PAPER_KS", (8,))
    (tmp_path / "own_tuned_combiner.py").write_text(
        "from knnmt.retrieval.combiner import DistanceCombiner\n"
        "MADE = []\n"
        "def made(store, config, engine):\n"
        "    MADE.append(config)\n"
        "    return DistanceCombiner(config, store.same_distance)\n"
        "class Never:\n"
        "    def __init__(self, store, config, engine): pass\n"
        "    def __call__(self, step): return step.states[:, 0] > 1e9, None\n",
        encoding="utf-8",
    )
    own = ["--combiner", "own_tuned_combiner:made"]
    by_bleu = ["--method", "bleu", "--temperature", "20", "--sample", "3"]
    said = succeeds("tune", store, "--dev", dev, *by_bleu, *own, *model)
    assert said.endswith("; to be used with --profile bleu --combiner own_tuned_combiner:made\n")
    assert "perplexity" not in said
    chosen = read_profiles(store)["bleu"]
    assert (chosen.loss, chosen.method) == (None, "bleu")
    assert chosen.config in sys.modules["own_tuned_combiner"].MADE
    assert default_profile(store) is None
    gated = succeeds("tune", store, "--dev", dev, *by_bleu, "--gate", "own_tuned_combiner:Never", *model)
    assert "100% saved" in gated
    assert gated.endswith("; to be used with --profile bleu --gate own_tuned_combiner:Never\n")
    assert "--combiner is for --method bleu" in refused("tune", store, "--dev", dev, *own, *model)
    assert "give another --profile than knn" in refused(
        "tune", store, "--dev", dev, *by_bleu, *own, "--profile", "knn", *model
    )


def test_the_papers_search(store: Path, dev: Path, model: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.adapting.tuning_by_bleu.PAPER_KS", (8,))
    before = Profile(RetrievalConfig(8, 0.5, 20.0), "likelihood", 40, 2.5)
    write_profiles(store, {"knn": before}, default="knn")
    said = succeeds("tune", store, "--dev", dev, "--method", "bleu", "--temperature", "20", "--sample", "3", *model)
    assert sum(line.startswith("BLEU") for line in said.splitlines()) == 4
    assert "; bleu is not its default: `--profile bleu` would make it the default\n" in said
    found = read_profiles(store)
    assert set(found) - {"bleu-cache"} == {"knn", "bleu"}
    assert found["knn"] == before
    bleu = found["bleu"]
    assert (bleu.method, bleu.pairs, bleu.config.temperature, bleu.config.fading) == ("bleu", 3, 20.0, None)
    assert default_profile(store) == "knn"
    succeeds("tune", store, "--dev", dev, "--method", "bleu", "--sample", "1", "--profile", "paper", *model)
    assert default_profile(store) == "paper"


def test_a_reduced_store_that_nothing_is_known_of_can_be_tuned(
    store: Path, dev: Path, model: list[str], tmp_path: Path
) -> None:
    short = tmp_path / "short.store"
    reduce(Datastore.open(store), short, 12)
    assert "Tune it (`knnmt tune STORE --dev DEV`)" in refused("translate", "-d", short, *model)
    said = succeeds("tune", short, "--dev", dev, *model)
    assert "\nbefore " not in said
    succeeds("translate", "-d", short, *model)


def test_damaged_profiles_are_written_anew(store: Path, dev: Path, model: list[str]) -> None:
    sections: list[object] = [[], {"segments": {"config": {"k": "many"}}}]
    for section in sections:
        write_settings(store, profiles=section, default_profile="segments")
        assert "knnmt tune" in refused("translate", "-d", store, *model)
        succeeds("tune", store, "--dev", dev, "--pairs", "4", *model)
        assert read_profiles(store)["segments"].pairs == 4


def test_inspecting_goes_on_past_a_damaged_profile(store: Path) -> None:
    sound = Profile(RetrievalConfig(8, 0.5, 20.0), "likelihood", 40, 2.5)
    write_profiles(store, {"after": sound})
    write_settings(store, profiles={"knn": {"config": {}}, **read_settings(store)["profiles"]}, default_profile=3)
    shown = succeeds("inspect", store)
    assert "damaged     " in shown
    assert "its profile 'knn' lacks a field" in shown
    assert f"profile     after: {sound.config.signature()}, by likelihood on 40 pairs\n" in shown
    assert "default_profile must be the name of a profile, found 3" in shown
    assert "\norigin " in shown
    write_settings(store, profiles=[])
    assert "its profiles cannot be read" in succeeds("inspect", store)


def test_verify_reads_the_settings(store: Path) -> None:
    write_profiles(store, {"knn": Profile(RetrievalConfig(8, 0.5, 20.0), "likelihood", 40, 2.5)}, "knn")
    assert succeeds("verify", store).startswith("sound: ")
    path = store / "settings.json"
    whole = path.read_text()
    path.write_text(whole.replace('"temperature": 20.0', '"temperature": 25.0'))
    assert "its checksum does not fit its content" in unsound(store)
    assert succeeds("inspect", store).count("damaged     ") == 1
    path.unlink()
    write_settings(store, profiles={"knn": {"config": {"k": "many"}}})
    assert "1 problems" in unsound(store)


def test_mistakes_of_tuning_are_explained(store: Path, dev: Path, model: list[str], tmp_path: Path) -> None:
    assert "--method must be likelihood or bleu, got 'luck'" in refused("tune", store, "--dev", dev, "--method", "luck")
    assert "cannot be called 'estimated'" in refused("tune", store, "--dev", dev, "--profile", "estimated")
    assert "no such file" in refused("tune", store, "--dev", tmp_path / "absent.tsv", *model)
    assert "there is no datastore" in refused("tune", tmp_path / "absent", "--dev", dev, *model)
    known = tmp_path / "known.tsv"
    known.write_text("".join(f"{each.source}\t{each.target}\n" for each in some_pairs(5)), encoding="utf-8")
    assert "0 pairs are too few to tune and report on" in refused("tune", store, "--dev", known, *model)
    assert "built with" in refused("tune", store, "--dev", dev, "--model", "de-en")
    assert not read_settings(store)


def test_fast_is_tuned_saved_beside_the_others_and_used(
    tiny: TransformerEngine, store: Path, dev: Path, model: list[str], tmp_path: Path
) -> None:
    assert "--for-fast" in refused("tune", store, "--dev", dev, "--fast", *model)
    assert "--for-fast" in refused("translate", "-d", store, "--fast", *model)
    assert "no effect" in refused("tune", store, "--dev", dev, "--fast-candidates", "3", *model)

    memory, known = tmp_path / "own.tsv", "Satz 31 ja ja nein"  # almost
    memory.write_text("".join(f"{each.source}\t{each.target}\n" for each in some_pairs(60)), encoding="utf-8")
    made = tmp_path / "fast.store"
    succeeds("build", memory, "-o", made, "--for-fast", "--no-estimate", *model)
    usual = succeeds("translate", "-d", made, "--scores", "--fast", *model, text=known)
    said = succeeds("tune", made, "--dev", dev, "--fast", "--fast-candidates", "3", *model)
    assert "searched in stores of 3 occurrences of each source token" in said
    profiles = read_profiles(made)
    assert list(profiles) == ["fast", "fast-fixed"]
    assert default_profile(made) is None
    for profile in profiles.values():
        assert profile.config.fast == FastConfig(3)
    losses = {line.split()[0]: float(line.split()[1]) for line in said.split("perplexity")[1].splitlines()[1:5]}
    assert list(losses) == ["alone", "before", "fast", "fast-fixed"]
    assert losses["fast-fixed"] < losses["alone"]

    tuned = succeeds("translate", "-d", made, "--scores", "--fast", *model, text=known)
    assert tuned == succeeds("translate", "-d", made, "--scores", "--profile", "fast", *model, text=known)
    assert tuned != usual
    assert tuned != succeeds("translate", "-d", made, "--scores", "--profile", "fast-fixed", *model, text=known)
    assert "fast:3" in (shown := succeeds("inspect", made))
    assert "for fast    " in shown


def test_a_default_of_another_kind_gives_way(
    tiny: TransformerEngine, tmp_path: Path, dev: Path, model: list[str]
) -> None:
    store = Datastore.build(tmp_path / "fast.store", some_pairs(80), tiny, BuildConfig(for_fast=True)).path
    of_fast = Profile(RetrievalConfig(8, 0.5, 0.05, fast=FastConfig()), "likelihood", 40, 0.001)
    write_profiles(store, {"own": of_fast}, default="own")
    said = succeeds("tune", store, "--dev", dev, *model)
    assert "compared    " in said  # with what is estimated
    assert default_profile(store) == "segments"
    said = succeeds("tune", store, "--dev", dev, "--fast", *model)
    assert "compared    " in said
    assert default_profile(store) == "segments"


def test_retrieval_by_segment_is_tuned_for_itself(store: Path, dev: Path, model: list[str]) -> None:
    said = succeeds("tune", store, "--dev", dev, *model, "--segments", "3")
    assert "searched in the 3 segments that cover each source best" in said
    assert "saved       profiles segments, segments-fixed" in said
    tuned = read_profiles(store)["segments"].config
    assert tuned.segments == 3
    translator = Translator(model[-1], device="cpu")
    for asked in (RetrievalSettings(search="segments"), RetrievalSettings(segments=3)):
        assert translator.memories.open(store).resolve(asked) == tuned
    assert translator.memories.open(store).resolve() == tuned
    whole = translator.memories.open(store).resolve(RetrievalSettings(search="whole"))
    assert whole.segments is None
    with pytest.raises(SettingError, match="search whole and segments 3 do not go together"):
        translator.memories.open(store).resolve(RetrievalSettings(search="whole", segments=3))
    said = refused("tune", store, "--dev", dev, *model, "--segments", "3", "--method", "bleu")
    assert "--segments tunes k, T and λ by likelihood" in said
