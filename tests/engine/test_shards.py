"""Splits of targets into shards: nothing is lost, nothing is twice, and what is shared stays together."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.engine.shards import Work, split


@st.composite
def works(draw: st.DrawFn, most: int = 12) -> Work:
    names = [f"a{number}" for number in range(draw(st.integers(0, 15)))]
    seconds = {name: draw(st.floats(0, 100)) for name in names}
    needs = {
        f"//:t{number}": frozenset(draw(st.sets(st.sampled_from(names)))) if names else frozenset[str]()
        for number in range(draw(st.integers(0, most)))
    }
    return Work(needs=needs, seconds=seconds)


@settings(max_examples=150, deadline=None)
@given(works(), st.integers(1, 6), st.randoms())
def test_every_target_is_in_one_shard_and_the_order_of_the_arguments_does_not_matter(
    work: Work, count: int, chance: random.Random
) -> None:
    shards = split(work, count)
    assert len(shards) == count
    assert sorted(label for shard in shards for label in shard.labels) == sorted(work.needs)
    for shard in shards:
        assert abs(shard.seconds - work.on_one_machine(shard.labels)) < 1e-9
    labels, names = list(work.needs), list(work.seconds)
    chance.shuffle(labels)
    chance.shuffle(names)
    shuffled = Work(
        needs={label: frozenset(sorted(work.needs[label], reverse=True)) for label in labels},
        seconds={name: work.seconds[name] for name in names},
    )
    assert split(shuffled, count) == shards


@settings(max_examples=60, deadline=None)
@given(works(most=7), st.integers(2, 3))
def test_the_longest_shard_is_at_most_a_quarter_longer_than_that_of_the_best_split(work: Work, count: int) -> None:
    labels = sorted(work.needs)
    best = min(
        max(
            work.on_one_machine(label for label, chosen in zip(labels, shards, strict=True) if chosen == shard)
            for shard in range(count)
        )
        for shards in itertools.product(range(count), repeat=len(labels))
    )
    assert max(shard.seconds for shard in split(work, count)) <= 1.25 * best + 0.002 * len(work.seconds)


def matrix_work() -> Work:
    """3 × 3 × 3 cells: exports are shared across platforms, kernels across schemes."""
    needs = {}
    for model, scheme, platform in itertools.product("abc", "xyz", "123"):
        shared = (f"export {model}{scheme}", f"kernels {model}{platform}")
        needs[f"//:{model}{scheme}{platform}"] = frozenset((*shared, f"own {model}{scheme}{platform}"))
    lengths = {"export": 5.0, "kernels": 20.0, "own": 15.0}
    return Work(needs=needs, seconds={name: lengths[name.split()[0]] for found in needs.values() for name in found})


def test_three_shards_of_a_matrix_are_its_models() -> None:
    assert [{label[3] for label in shard.labels} for shard in split(matrix_work(), 3)] == [{"a"}, {"b"}, {"c"}]


def test_two_shards_of_a_matrix_repeat_little_and_are_about_equal() -> None:
    work = matrix_work()
    first, second = split(work, 2)
    whole = work.on_one_machine(work.needs)
    assert max(first.seconds, second.seconds) <= 0.56 * whole
    assert first.seconds + second.seconds <= 1.08 * whole


def test_more_shards_than_targets_leave_the_last_ones_empty() -> None:
    work = Work(needs={"//:a": frozenset({"x"}), "//:b": frozenset({"y"})}, seconds={"x": 1.0, "y": 2.0})
    assert [shard.labels for shard in split(work, 4)] == [("//:a",), ("//:b",), (), ()]
