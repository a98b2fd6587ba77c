"""Rows: two blocks that differ in what they should, patterns that choose among them."""

from __future__ import annotations

from itertools import product

import pytest

from knnmt.errors import SettingError
from knnmt_lab.reproduction.plan import all_rows, chosen_rows, combined_dim, dims_for, speed_rows


def test_blocks_have_the_same_methods_and_other_caches() -> None:
    rows = {row.name: row for row in all_rows(320)}
    ours = {name.partition("/")[2] for name in rows if name.startswith("B/")}
    published = {name.partition("/")[2] for name in rows if name.startswith("A/")}
    of_methods = [f"pca-{dim}" for dim in dims_for(320)] + ["pruning-2", "cache-6", "pca+cache+pruning", "adaptive-0.5"]
    assert {"knn", *of_methods} <= ours & published
    assert {"knn-fixed", "cache-6-published-fixed", "pruning-5-uncounted"} <= ours - published
    assert {"meta-k", "robust", "kernel-smoothed", "robust-fading", "plac"} <= ours - published
    for name, row in rows.items():
        if row.cache is not None and name.startswith("B/") and "published" not in name:
            assert (row.cache.scope, row.cache.keep_hits) == ("sentence", False)
    told_apart = {
        (row.cache.scope, row.cache.keep_hits)
        for name, row in rows.items()
        if name.startswith("A/cache-6") and row.cache and row.fades is None
    }
    assert len(told_apart) == 4
    assert rows["A/cache-6"].cache is not None
    assert rows["A/cache-6"].cache.capacity >= 16 * 5 * 200  # all states of the longest translations, as published
    assert rows["A/cache-6"].cache.signature() == "cache:6+batch+hits"
    assert rows["A/pca+cache+pruning"].steps == ("pca256", "prune2")
    assert [rows[f"{block}/pca+cache"].cache.whole_states for block in "AB"] == [True, False]  # type: ignore[union-attr]


def test_an_index_and_a_weight_differ_in_one_thing_each() -> None:
    rows = {row.name: row for row in all_rows(320)}
    two_by_two = {
        name: (rows[name].block, rows[name].has_fading) for name in ("A/knn", "A/knn-fading", "B/knn-fixed", "B/knn")
    }
    assert sorted(two_by_two.values()) == [("A", False), ("A", True), ("B", False), ("B", True)]
    cached = ("A/cache-6", "A/cache-6-fading", "B/cache-6-published-fixed", "B/cache-6-published")
    assert [(rows[name].block, rows[name].has_fading) for name in cached] == list(two_by_two.values())
    assert len({rows[name].cache for name in cached}) == 1


def test_seeds_and_shares_of_gates() -> None:
    rows = all_rows(320, ["A"])
    for kind, share in product(("gate", "chance", "own-gate"), (25, 50, 75)):
        found = [row for row in rows if row.name.startswith(f"A/{kind}-{share}")]
        assert [row.seed for row in found] == [1, 2, 3, 4, 5]
        assert {row.share for row in found} == {share}
    assert [row.seed for row in rows if row.alpha == 0.5] == [1, 2, 3, 4, 5]
    chance = next(row for row in rows if row.name == "A/chance-50@3")
    assert chance.partner == "A/gate-50@3"
    assert not any(row.k_of or row.fidelity_of for row in rows)  # which need block B
    assert {row.partner for row in rows if row.chance} <= {row.name for row in rows}


def test_dimensions_fit_the_model() -> None:
    assert dims_for(1024) == (512, 256, 128)
    assert dims_for(320) == (256, 192, 128, 80, 64, 40)
    assert dims_for(512) == (256, 192, 128, 80, 64, 40)
    assert dims_for(32) == (16, 8)
    assert [combined_dim(dim) for dim in (1024, 320, 32)] == [256, 256, 16]


def test_patterns_choose_rows_and_bring_what_chance_needs() -> None:
    rows = all_rows(320)
    names = [row.name for row in chosen_rows(rows, ["base", "B/random-0.5", "A/cache-*"], ["A/cache-*-*"])]
    cached = [f"A/cache-{tau}" for tau in (2, 4, 6, 8, 12, 9, 10, 11)]
    assert names == ["base", "B/adaptive-0.5", "B/random-0.5", *cached]  # in the order of the patterns
    later = [row.name for row in chosen_rows(rows, ["A/chance-50@2", "*knn-k", "A/gate-*", "B/knn"])]
    assert later[:4] == ["A/gate-50@2", "A/chance-50@2", "A/knn-k", "B/knn-fixed"]
    assert chosen_rows(rows, []) == rows
    brief = chosen_rows(rows, [], brief=True)
    assert set(speed_rows(rows)) <= set(brief)
    assert {"B/pruning-1", "B/pruning-2", "B/pruning-2-uncounted"} <= {row.name for row in brief}
    assert 2 * len(brief) < 1.6 * len(rows)
    with pytest.raises(SettingError, match="there is no system 'C/knn'; the systems are base, fast-512"):
        chosen_rows(rows, ["C/knn"])


def test_speed_is_of_the_figures_rows() -> None:
    names = [row.name for row in speed_rows(all_rows(320))]
    assert names[:4] == ["base", "fast-512", "segments", "A/knn"]
    assert {"A/pca-256", "A/pca+cache+pruning", "B/knn", "B/cache-4"} <= set(names)
    assert not any("random" in name or "adaptive" in name for name in names)
