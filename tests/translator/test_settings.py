"""One description of every setting: Python, the command line, HTTP and the texts of systems say the same of it."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import numpy as np
import pytest
import typer
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from knnmt.cli.setting_options import options_of, takes_settings
from knnmt.config import CacheConfig, FastConfig, RetrievalConfig
from knnmt.errors import SettingError
from knnmt.evaluation.systems import parse_system
from knnmt.retrieval.settings import RetrievalKeywords, RetrievalSettings
from knnmt.service.config import read_config
from knnmt.service.dialects.speaking import SettingsParameters
from knnmt.service.http.request_shapes import ExplainBody, RetrievalBody, TranslateBody
from knnmt.service.http.setting_shapes import parameter, settings_in_query
from knnmt.settings import NOT_GIVEN, NotGiven, Use, described, settings_of, spelled
from knnmt.translator.settings import PRESETS, TranslationKeywords, TranslationSettings, translation_settings
from support.commands import all_commands

# A value of every setting: in Python, as an option, and in the text of a system.
VALUES: dict[str, tuple[Any, list[str], str]] = {
    "k": (4, ["--k", "4"], "k=4"),
    "interpolation_weight": (0.5, ["--lambda", "0.5"], "lambda=0.5"),
    "temperature": (9.0, ["--temperature", "9"], "temperature=9"),
    "fading": (False, ["--no-fading"], "fading=no"),
    "cache": ("20%", ["--cache", "20%"], "cache=20%"),
    "gate": (0.25, ["--gate", "0.25"], "gate=0.25"),
    "combiner": ("own.part:Name", ["--combiner", "own.part:Name"], "combiner=own.part:Name"),
    "forms": (False, ["--no-forms"], "forms=no"),
    "profile": ("knn", ["--profile", "knn"], "profile=knn"),
    "search": ("segments", ["--search", "segments"], "search=segments"),
    "segments": (64, ["--segments", "64"], "segments=64"),
    "fast": (True, ["--fast"], "fast=yes"),
    "fast_candidates": (64, ["--fast-candidates", "64"], "fast-candidates=64"),
    "fast_any_token": (True, ["--fast-any-token"], "fast-any-token=yes"),
    "beam": (3, ["--beam", "3"], "beam=3"),
    "n_best": (2, ["--n-best", "2"], "n-best=2"),
    "length_penalty": (0.5, ["--length-penalty", "0.5"], "length-penalty=0.5"),
    "max_tokens": (64, ["--max-tokens", "64"], "max-tokens=64"),
    "batch_size": (16, ["--batch-size", "16"], "batch-size=16"),
    "batch_tokens": (512, ["--batch-tokens", "512"], "batch-tokens=512"),
    "window": (8, ["--window", "8"], "window=8"),
    "split_sentences": (False, ["--no-split-sentences"], "split-sentences=no"),
    "protect": (False, ["--no-protect"], "protect=no"),
    "tags": ("xml", ["--tags", "xml"], "tags=xml"),
    "placeholders": (
        ("~~*~~", "<<*>>"),
        ["--placeholder", "~~*~~", "--placeholder", "<<*>>"],
        "placeholder=~~*~~,placeholder=<<*>>",
    ),
    "exact_matches": ("prefer", ["--exact-matches", "prefer"], "exact-matches=prefer"),
    "match_threshold": (80, ["--match-threshold", "80"], "match-threshold=80"),
    "evidence": (True, ["--evidence"], "evidence=yes"),
    "match": (True, ["--match"], "match=yes"),
}
ONLY_IN_PYTHON: dict[str, Any] = {"early_stopping": "never", "steps": True}


def by_options(*written: str, uses: tuple[Use, ...] = ("texts", "documents")) -> TranslationSettings:
    found: list[TranslationSettings] = []

    @takes_settings(*uses)
    def command(*, settings: TranslationSettings) -> None:
        found.append(settings)

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, list(written)).exit_code == 0
    return found[0]


@pytest.mark.parametrize("name", VALUES)
def test_a_setting_is_the_same_however_it_is_given(name: str) -> None:
    value, written, text = VALUES[name]
    asked = TranslationSettings(**{name: value})
    assert asked.given() == {name: value}
    assert translation_settings(None, **{name: value}) == asked
    assert by_options(*written) == asked
    assert parse_system(f"it.store,{text}").settings == asked
    assert options_of(asked) == [written[0].replace("--no-", "--")]
    assert pickle.loads(pickle.dumps(asked)) == asked
    sent = list(value) if isinstance(value, tuple) else value
    if name in TranslateBody.model_fields:
        assert TranslateBody.model_validate({"texts": ["Ja."], name: sent}).settings() == asked
    elif name in RetrievalBody.model_fields:
        assert TranslateBody.model_validate({"texts": ["Ja."], "retrieval": {name: sent}}).settings() == asked
    else:
        assert "http" not in described(TranslationSettings)[name].interfaces


@pytest.mark.parametrize("name", VALUES)
def test_a_setting_of_a_service_is_the_same_in_its_file_and_in_requests_of_tools(name: str, tmp_path: Path) -> None:
    value, written, _ = VALUES[name]
    asked, known = TranslationSettings(**{name: value}), described(TranslationSettings)[name]
    in_a_query = [str(each).lower() for each in value] if isinstance(value, tuple) else str(value).lower()
    if "service" in known.uses:
        assert by_options(*written, uses=("service",)) == asked
        file = tmp_path / "serve.toml"
        file.write_text(f"[settings]\n{name} = {json.dumps(value)}\n")
        assert read_config(file, {}).settings == asked
        assert read_config(file, {"settings": TranslationSettings(beam=9)}).settings.beam == 9
    if "service" in known.uses and "http" in known.interfaces:
        assert SettingsParameters.model_validate({parameter(name, known): in_a_query}).settings() == asked
    if "documents" in known.uses and "http" in known.interfaces:
        assert in_the_query_of_documents({parameter(name, known): in_a_query}) == asked


def in_the_query_of_documents(query: dict[str, Any]) -> TranslationSettings:
    app = FastAPI()

    @app.get("/")
    async def given(settings: Annotated[TranslationSettings, Depends(settings_in_query("documents"))]) -> None:
        found.append(settings)

    found: list[TranslationSettings] = []
    answer = TestClient(app).get("/", params=query)
    assert answer.status_code == 200, answer.text
    return found[0]


def test_a_service_has_no_settings_of_single_requests_and_no_unknown_ones(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    for name in ("n_best", "evidence", "batch_size", "steps", "typo"):
        file.write_text(f"[settings]\n{name} = 2\n")
        with pytest.raises(SettingError, match=rf"serve.toml: \[settings\] has no '{name}'; it can have k, "):
            read_config(file, {})
    file.write_text("[settings]\nbeam = 0\n")
    with pytest.raises(SettingError, match=r"serve.toml: \[settings\]: beam must be at least 1, got 0"):
        read_config(file, {})


def test_every_setting_has_a_value_here() -> None:
    assert VALUES.keys() | ONLY_IN_PYTHON.keys() == described(TranslationSettings).keys()
    for name, value in ONLY_IN_PYTHON.items():
        assert TranslationSettings(**{name: value}).given() == {name: value}
        assert not described(TranslationSettings)[name].interfaces


def test_all_of_them_together_and_none() -> None:
    every = TranslationSettings(**{name: value for name, (value, _, _) in VALUES.items()})
    assert by_options(*(word for _, written, _ in VALUES.values() for word in written)) == every
    assert parse_system(",".join(["it.store", *(text for _, _, text in VALUES.values())])).settings == every
    assert by_options() == parse_system("it.store").settings == TranslationSettings()
    assert not TranslationSettings().given()
    assert parse_system("it.store,fast=64").settings == TranslationSettings(fast=64)
    own = TranslationSettings(gate="own.part:Name")
    assert by_options("--gate", "own.part:Name") == parse_system("it.store,gate=own.part:Name").settings == own
    assert every.retrieval == RetrievalSettings(**{name: VALUES[name][0] for name in described(RetrievalSettings)})
    assert settings_of(TranslationSettings, every.retrieval).over(every.without_retrieval) == every


@pytest.mark.parametrize(
    ("keywords", "kind"), [(RetrievalKeywords, RetrievalSettings), (TranslationKeywords, TranslationSettings)]
)
def test_keywords_are_the_fields_for_a_type_checker(keywords: Any, kind: type[RetrievalSettings]) -> None:
    def kinds(hint: Any) -> set[Any]:
        return set(get_args(hint)) - {type(None), NotGiven, list[str]}

    typed, of_fields = get_type_hints(keywords), get_type_hints(kind)
    assert list(typed) == list(of_fields) == list(described(kind))
    for name, hint in typed.items():
        assert kinds(hint) == kinds(of_fields[name])


def test_options_are_spelled_as_python_does_but_for_two() -> None:
    names = {option: name for option, name in spelled(TranslationSettings).items() if option.replace("-", "_") != name}
    assert names == {"lambda": "interpolation_weight", "placeholder": "placeholders"}


def test_commands_and_requests_offer_the_settings_that_fit_them() -> None:
    known = described(TranslationSettings)
    options = {name: option for option, name in spelled(TranslationSettings).items()}

    def offered(verb: str) -> set[str]:
        typed = {option for each in all_commands()[verb].params for option in each.opts}
        return {name for name, option in options.items() if f"--{option}" in typed}

    def fitting(interface: str, *uses: str) -> set[str]:
        return {name for name, each in known.items() if interface in each.interfaces and {*uses} & {*each.uses}}

    assert offered("translate") == fitting("command line", "texts", "documents")
    assert offered("explain") == fitting("command line", "explain")
    assert offered("evaluate") == fitting("command line", "evaluate") - described(RetrievalSettings).keys()
    assert offered("bench") == fitting("command line", "bench") - described(RetrievalSettings).keys()
    assert offered("serve") == fitting("command line", "service")
    of_retrieval = set(RetrievalBody.model_fields)
    assert TranslateBody.model_fields.keys() & known.keys() | of_retrieval == fitting("http", "texts")
    assert ExplainBody.model_fields.keys() & known.keys() | of_retrieval == fitting("http", "explain")


def test_defaults_are_the_same_everywhere() -> None:
    complete = TranslationSettings().resolved()
    body = TranslateBody.model_validate({"texts": ["Ja."]})
    assert body.settings().resolved() == by_options().resolved() == complete
    for name, each in described(TranslationSettings).items():
        if each.default is not None:
            assert getattr(complete, name) == each.default
            if name in TranslateBody.model_fields:
                shown = getattr(body, name)
                assert (tuple(shown) if each.many else shown) == each.default
        else:
            assert name not in complete.given()


def test_raw_decodes_texts_as_they_are() -> None:
    raw = PRESETS["raw"].resolved()
    assert (raw.split_sentences, raw.protect, raw.exact_matches) == (False, False, "ignore")
    mixed = translation_settings("raw", beam=2, protect=True).resolved()
    assert mixed == TranslationSettings(beam=2, protect=True).over(raw)
    assert raw.signature(with_memory=True) == "text:raw"
    usual = TranslationSettings().signature(with_memory=True)
    assert usual == "text:split+protect/auto|matches:use/100"
    with pytest.raises(SettingError, match="settings must be TranslationSettings or one of raw, got 'row'"):
        translation_settings("row")  # type: ignore[arg-type]


def test_what_whole_settings_have_can_be_asked_for_by_the_same_name() -> None:
    """But for what is only estimated: how λ fades."""
    nested = {f"cache_{each.name}" for each in fields(CacheConfig)} | {
        f"fast_{each.name}" for each in fields(FastConfig)
    }
    whole = {each.name for each in fields(RetrievalConfig)} | nested
    # A threshold is what `cache` itself is; nobody chose a capacity; the others reproduce the paper's code; a profile
    # names no code.
    of_the_paper = {"cache_scope", "cache_keep_hits", "cache_whole_states", "use_counts"}
    assert set(described(RetrievalSettings)) - whole == {"profile", "combiner", "search"}
    assert whole - set(described(RetrievalSettings)) == {"cache_threshold", "cache_capacity", *of_the_paper}


@pytest.mark.parametrize("name", ["k", "interpolation_weight", "temperature", "gate"])
def test_bounds_are_those_of_whole_settings(name: str) -> None:
    whole = RetrievalConfig(8, 0.5, 10.0)
    candidates = [-1, 0, 1, 2, 4096, 4097] if name == "k" else [-1.0, -1e-9, 0.0, 1e-9, 0.5, 1.0, 2.0, math.nan]

    def refused(make: Any) -> bool:
        try:
            make()
        except SettingError:
            return True
        return False

    found = []
    for value in candidates:
        given = {name: value}
        found.append(refused(lambda given=given: RetrievalSettings(**given)))
        assert found[-1] == refused(lambda given=given: replace(whole, **given))
    assert set(found) == {True, False}


def test_a_choice_is_one_of_few() -> None:
    with pytest.raises(SettingError, match="tags must be 'auto', 'xml', 'html' or 'none', got 'sgml'"):
        TranslationSettings(tags="sgml")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="early_stopping must be True, False or 'never', got 'always'"):
        TranslationSettings(early_stopping="always")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="search must be 'whole' or 'segments', got 'world'"):
        RetrievalSettings(search="world")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"k": "8"}, "k must be a whole number, got '8'"),
        ({"segments": 2.5}, "segments must be a whole number, got 2.5"),
        ({"temperature": "hot"}, "temperature must be a number, got 'hot'"),
        ({"fading": "no"}, "fading must be True or False or a whole number, got 'no'"),
        ({"cache": [6]}, r"cache must be a number or a text, got \[6\]"),
        ({"search": 1}, "search must be a text, got 1"),
        (
            {"combiner": print},
            r"combiner must be a text, got .*print.*; put an existing combiner into a `Ret",
        ),
        (
            {"gate": print},
            "gate must be a number or a text, got .*; put an existing gate into a `Retrieval`",
        ),
    ],
)
def test_a_value_of_another_kind_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        RetrievalSettings(**given)
    sound: Any = {"k": np.int64(3), "temperature": np.float32(2), "fading": False, "fast": 64, "cache": "20%"}
    assert RetrievalSettings(**sound).given() == sound


def test_settings_as_a_whole_are_no_dict() -> None:
    with pytest.raises(SettingError, match="settings must be RetrievalSettings, got "):
        settings_of(RetrievalSettings, {"k": 3})  # type: ignore[arg-type]


def test_none_says_none_of_a_cache_and_a_gate_and_nothing_of_others() -> None:
    assert RetrievalSettings(cache=None, gate=None, k=None).given() == {"cache": None, "gate": None}
    assert RetrievalSettings().cache is NOT_GIVEN
    assert repr(NOT_GIVEN) == "NOT_GIVEN"


def test_what_is_given_counts_before_what_others_say() -> None:
    own, others = RetrievalSettings(k=2, cache=None), RetrievalSettings(k=8, cache=6.0, temperature=3.0)
    assert own.over(others) == RetrievalSettings(k=2, cache=None, temperature=3.0)
    assert RetrievalSettings().over(others) == others
    assert settings_of(RetrievalSettings, others, k=2) == RetrievalSettings(k=2, cache=6.0, temperature=3.0)


def test_a_misspelt_keyword_is_refused() -> None:
    with pytest.raises(SettingError, match="there is no setting 'temprature'; the settings are k, interpol"):
        settings_of(RetrievalSettings, None, temprature=3.0)
    with pytest.raises(
        SettingError, match=r"there is no setting 'temprature'; the settings are exact, k, lambda, .*fast-candidates"
    ):
        parse_system("it.store,temprature=3")


def test_the_documentation_names_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "retrieval.md").read_text(encoding="utf-8")
    table = page.partition("## Settings")[2].partition("\n## ")[0]
    missing = [each for each in spelled(RetrievalSettings) if f"--{each}" not in table and f"--no-{each}" not in table]
    assert missing == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"segments": 1.5}, r"segments must be a whole number, got 1\.5"),
        ({"segments": "4"}, "segments must be a whole number, got '4'"),
        ({"k": True}, "k must be a whole number, got True"),
        ({"temperature": "10"}, "temperature must be a number, got '10'"),
        ({"fast_candidates": 2.0}, r"fast_candidates must be a whole number, got 2\.0"),
    ],
)
def test_a_number_is_none_of_another_type(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        RetrievalSettings(**given)


@pytest.mark.parametrize("temperature", [1e-308, 1e-21, 1e21, math.inf])
def test_a_temperature_has_weights_in_float32(temperature: float) -> None:
    with pytest.raises(SettingError, match="temperature must lie between 1e-20 and 1e\\+20"):
        RetrievalConfig(k=4, interpolation_weight=0.5, temperature=temperature)
