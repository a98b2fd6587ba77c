"""Rows: two blocks that differ in what they should, patterns that choose among them."""

from __future__ import annotations

import pytest

from knnmt.errors import SettingError
from knnmt.reproduction.plan import all_rows, chosen_rows, combined_dim, dims_for, speed_rows


def test_blocks_have_the_same_methods_and_other_caches() -> None:
    rows = {row.name: row for row in all_rows(320)}
    ours = {name.partition("/")[2] for name in rows if name.startswith("B/")}
    published = {name.partition("/")[2] for name in rows if name.startswith("A/")}
    later = {"meta-k", "robust", "kernel-smoothed", "plac"}
    assert ours - published == {"knn-fixed", *later}  # our index with the paper's λ, and what came after
    assert all(each.count("-") > 1 for each in published - ours)  # the paper's cache, its differences told apart
    for name, row in rows.items():
        if row.cache is not None and name.startswith("B/"):
            assert (row.cache.scope, row.cache.keep_hits) == ("sentence", False)
    told_apart = {
        (row.cache.scope, row.cache.keep_hits)
        for name, row in rows.items()
        if name.startswith("A/cache-6") and row.cache
    }
    assert len(told_apart) == 4
    assert rows["A/cache-6"].cache is not None
    assert rows["A/cache-6"].cache.capacity >= 16 * 5 * 200  # all states of the longest translations, as published
    assert rows["A/cache-6"].cache.signature() == "cache:6+batch+hits"
    assert rows["A/pca+cache+pruning"].steps == ("pca256", "prune2")


def test_dimensions_fit_the_model() -> None:
    assert dims_for(1024) == (512, 256, 128)
    assert dims_for(320) == (256, 192, 128, 64)
    assert dims_for(512) == (256, 192, 128, 64)
    assert dims_for(32) == (16, 8)
    assert [combined_dim(dim) for dim in (1024, 320, 32)] == [256, 256, 16]


def test_patterns_choose_rows_and_bring_what_chance_needs() -> None:
    rows = all_rows(320)
    names = [row.name for row in chosen_rows(rows, ["base", "B/random-0.5", "A/cache-*"], ["A/cache-*-*"])]
    assert names == ["base", *(f"A/cache-{tau}" for tau in (2, 4, 6, 8, 12)), "B/adaptive-0.5", "B/random-0.5"]
    assert chosen_rows(rows, []) == rows
    brief = chosen_rows(rows, [], brief=True)
    assert set(speed_rows(rows)) <= set(brief)
    assert [row.name for row in brief if row.name.startswith("B/pruning")] == [
        "B/pruning-1",
        "B/pruning-2",
        "B/pruning-5",
    ]
    assert 2 * len(brief) < 1.5 * len(rows)
    with pytest.raises(SettingError, match="no system is called 'C/knn'; there are base, fast-512"):
        chosen_rows(rows, ["C/knn"])


def test_speed_is_of_the_figures_rows() -> None:
    names = [row.name for row in speed_rows(all_rows(320))]
    assert names[:4] == ["base", "fast-512", "segments", "A/knn"]
    assert {"A/pca-256", "A/pca+cache+pruning", "B/knn", "B/cache-4"} <= set(names)
    assert not any("random" in name or "adaptive" in name for name in names)
