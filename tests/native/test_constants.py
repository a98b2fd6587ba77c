"""A number that Python, C++ and CUDA all need is the same in each."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import knnmt.native

SOURCES = Path(knnmt.native.__file__).parent
SAME = [
    ("retrieval.combiner.SAME_WEIGHT", "step.cpp", "SAME_WEIGHT"),
    ("retrieval.combiner.SAME_WEIGHT", "gpu/mixture.h", "SAME_WEIGHT"),
    ("retrieval.combiner.LOG_ADVANTAGE", "step.cpp", "LOG_ADVANTAGE"),
    ("retrieval.combiner.LOG_ADVANTAGE", "gpu/mixture.h", "LOG_ADVANTAGE"),
    ("retrieval.graphs._MAX_NEIGHBOURS", "gpu/mix.cu", "MOST"),
    ("decoding.graph_choice._PART", "gpu/candidates.cu", "PART"),
    ("decoding.graph_choice._MOST_KEYS", "gpu/largest.h", "MOST_KEYS"),
    ("decoding.graph_choice._MOST_NEAR", "gpu/follow.cu", "MOST_NEAR"),
    ("index.reranking._MAX_CANDIDATES", "gpu/measure.cu", "MOST"),
    ("segments.covering.ORDERS", "choose.cpp", "ORDERS"),
    ("segments.covering._STEPS", "choose.cpp", "STEPS"),
    ("segments.covering._BM25_K", "choose.cpp", "BM25_K"),
    ("segments.covering._BM25_B", "choose.cpp", "BM25_B"),
    ("segments.covering._LENGTH_OFFSET", "choose.cpp", "LENGTH_OFFSET"),
    ("segments.covering._LENGTH_POWER", "choose.cpp", "LENGTH_POWER"),
    ("index.four_bit._ENTRIES", "search.cpp", "ENTRIES"),
    ("retrieval.trained.seen.LEAST", "network.cpp", "LEAST"),
    ("retrieval.trained.networks._MOST", "network.cpp", "MOST"),
    ("engine.product._DIGIT", "product8.cpp", "OFFSET"),
]


def in_source(name: str, constant: str) -> float:
    """The first value of a constant in a file."""
    text = (SOURCES / name).read_text(encoding="utf-8")
    found = re.search(rf"^constexpr [^;]*\b{constant} = (-?[\d.]+(?:e-?\d+)?)", text, re.MULTILINE)
    assert found is not None, f"{name} has no constant {constant}"
    return float(found[1])


@pytest.mark.parametrize(("in_python", "name", "constant"), SAME, ids=lambda part: part)
def test_a_number_is_the_same_wherever_it_is_written(in_python: str, name: str, constant: str) -> None:
    module, _, attribute = in_python.rpartition(".")
    assert getattr(import_module(f"knnmt.{module}"), attribute) == in_source(name, constant)


def test_the_largest_weight_below_1_is_the_same() -> None:
    """Of λ, in C++ and in CUDA: the float32 before 1."""
    assert "MOST = 1 - 0x1p-24f" in (SOURCES / "step.cpp").read_text(encoding="utf-8")
    assert "most = 1.0f - 5.9604644775390625e-8f" in (SOURCES / "gpu" / "mixture.h").read_text(encoding="utf-8")
    assert 2.0**-24 == 5.9604644775390625e-8
