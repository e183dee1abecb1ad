"""Which candidates are measured next, by values alone."""

from __future__ import annotations

from collections import Counter

from mlcbuild.cli.tune.plan import TunableKernel, next_trials, spread_trials, untuned_seconds, values_of
from mlcbuild.tuning.record import Record
from tests.cli.tunable_kernels import SHAPES, kernel
from tests.tuning.recorded import record


def measured(of: TunableKernel, number: int, seconds: float, *, size: int = 0) -> Record:
    return record(
        kernel=of.name,
        shape=values_of(SHAPES[number]),
        sizes=(("n", size),) if size else (),
        seconds=seconds,
        untuned_seconds=seconds,
    )


def test_each_kernel_is_tried_before_any_is_tried_twice() -> None:
    kernels = [kernel(1, 1024), kernel(2, 8), kernel(3, 64)]
    trials = next_trials(kernels, {}, 10)
    assert sorted(trial.kernel.text for trial in trials) == ["1", "2", "3"]
    assert {trial.number for trial in trials} == {1}, "the shape that is nearest to the default"


def test_fewer_trials_than_new_kernels_go_to_those_of_the_most_bytes() -> None:
    kernels = [kernel(1, 8), kernel(2, 1024), kernel(3, 64), kernel(4, 512, calls=3)]
    assert [trial.kernel.text for trial in next_trials(kernels, {}, 2)] == ["4", "2"]


def test_a_trial_that_failed_without_a_record_is_not_planned_again() -> None:
    large, small = kernel(1, 1024), kernel(2, 8)
    failed = {(large.name, 1)}
    assert [trial.kernel for trial in next_trials([large, small], {}, 10, failed=failed)] == [small]
    records = {small.name: [measured(small, 1, 1.0)]}
    trials = next_trials([large, small], records, 100, failed=failed)
    assert {trial.kernel.text for trial in trials} == {"1", "2"}
    assert 1 not in {trial.number for trial in trials}


def test_bytes_and_calls_tell_where_the_time_is_before_anything_is_measured() -> None:
    small, large, often = kernel(1, 63), kernel(2, 255), kernel(3, 63, calls=8)
    taken = Counter(trial.kernel.text for trial in spread_trials([small, large, often], {}, 13))
    assert taken == {"1": 1, "2": 4, "3": 8}


def test_a_kernel_that_was_never_measured_counts_as_fast_for_its_bytes_as_those_that_were() -> None:
    slow, fast, new = kernel(1, 255), kernel(2, 255), kernel(3, 511)
    records = {slow.name: [measured(slow, 1, 3.0)], fast.name: [measured(fast, 1, 1.0)]}
    taken = Counter(trial.kernel.text for trial in spread_trials([slow, fast, new], records, 8))
    assert taken == {"1": 3, "2": 1, "3": 4}


def test_sizes_count_by_their_average() -> None:
    one, any_number = kernel(1, 64), kernel(2, 64, sizes=(1, 3))
    assert any_number.size_bytes == 2 * 64 * (64 + 2)
    assert one.size_bytes == 2 * 64 * (64 + 1)
    records = [measured(any_number, 1, 1.0, size=1), measured(any_number, 1, 2.0, size=3)]
    assert untuned_seconds(any_number, records) == 1.5
    assert untuned_seconds(any_number, []) == 0


def test_a_shape_is_tried_until_it_was_measured_at_all_sizes() -> None:
    of = kernel(1, 64, sizes=(1, 3))
    half = {of.name: [measured(of, 1, 1.0, size=1)]}
    assert 1 in {trial.number for trial in spread_trials([of], half, 100)}
    whole = {of.name: [*half[of.name], measured(of, 1, 1.0, size=3)]}
    assert {trial.number for trial in spread_trials([of], whole, 100)} == set(range(2, len(SHAPES)))
