"""Records: their form, their union, what is chosen by them, and the files that hold them."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcbuild.tuning.choice import choices
from mlcbuild.tuning.record import Outcome, Record, merged, platform_key
from mlcbuild.tuning.rule_versions import VERSIONS
from mlcbuild.tuning.store import RecordStore, Segment
from tests.tuning.recorded import PLATFORM, record

KERNEL = f"kernel_{0:032x}"
_RATIOS = st.floats(min_value=1e-3, max_value=4.0)

# A busy machine generates slowly.
PATIENT = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def records(draw: st.DrawFn) -> Record:
    outcome = draw(st.sampled_from([Outcome.MEASURED] * 4 + [Outcome.WRONG, Outcome.CRASHED]))
    ratio = draw(_RATIOS)
    measured = {"seconds": ratio, "untuned_seconds": 1.0} if outcome is Outcome.MEASURED else {}
    return record(
        kernel=f"kernel_{draw(st.integers(0, 2)):032x}",
        shape=(("chains", draw(st.integers(1, 2))), ("rows", draw(st.integers(1, 2)))),
        sizes=draw(st.sampled_from([(), (("n", 16),), (("n", 128),)])),
        device=draw(st.sampled_from(["one", "other", "Prozessor™"])),
        outcome=outcome,
        message=draw(st.sampled_from(["", "line\nbreak"])),
        **measured,
    )


@PATIENT
@given(records())
def test_a_record_is_read_as_it_was_written(one: Record) -> None:
    assert one.line().count("\n") == 1
    assert Record.read(one.line()) == one
    assert Record.read(one.line()).digest == one.digest


@PATIENT
@given(st.lists(records(), max_size=12), st.randoms())
def test_what_is_chosen_depends_on_no_order_and_a_merge_is_the_union(found: list[Record], order: random.Random) -> None:
    cut = len(found) // 2
    shuffled = found[:]
    order.shuffle(shuffled)
    assert merged(found) == merged(shuffled, found) == merged(found[cut:], found[:cut])
    assert set(merged(found)) == set(found)
    assert choices(found) == choices(shuffled) == choices(merged(found))


@PATIENT
@given(st.lists(records(), max_size=20))
def test_what_has_failed_is_never_chosen_and_what_is_chosen_gains(found: list[Record]) -> None:
    for kernel, choice in choices(found).items():
        tried = [one for one in found if one.kernel == kernel and one.shape == choice.shape]
        assert tried
        assert all(one.outcome is Outcome.MEASURED for one in tried)
        assert choice.ratio < 0.98


def test_the_best_shape_is_that_of_the_least_ratio_at_all_sizes() -> None:
    wide, narrow = (("rows", 4),), (("rows", 2),)
    small, large = (("n", 16),), (("n", 512),)
    found = [
        record(shape=wide, sizes=small, seconds=0.2),
        record(shape=wide, sizes=large, seconds=1.2),
        record(shape=narrow, sizes=small, seconds=0.4),
        record(shape=narrow, sizes=large, seconds=0.4),
        record(shape=(("rows", 8),), sizes=small, seconds=0.1),  # not measured at 512
    ]
    choice = choices(found)[KERNEL]
    assert choice.shape == narrow
    assert choice.ratio == pytest.approx(0.4)
    assert choices([*found, record(shape=narrow, sizes=large, outcome=Outcome.WRONG)])[KERNEL].shape == wide


def test_the_record_of_a_choice_changes_with_its_measurements_alone() -> None:
    one, other = record(seconds=0.5), record(seconds=0.4)
    unrelated = record(kernel=f"kernel_{1:032x}")
    assert choices([one])[KERNEL].record == one.digest
    assert choices([one, unrelated])[KERNEL] == choices([one])[KERNEL]
    assert choices([one, other])[KERNEL].record not in (one.digest, other.digest)


def test_records_beside_another_default_or_at_other_sizes_choose_nothing_and_hide_nothing() -> None:
    rule, today = next((name, f"{name}:{version}") for name, version in VERSIONS.items())
    wide, narrow = (("rows", 4),), (("rows", 2),)
    old = [record(rule=rule, shape=wide, sizes=(("n", size),), seconds=0.1) for size in (4, 128)]
    new = [record(rule=today, shape=narrow, sizes=(("n", size),), seconds=0.8) for size in (64, 128)]
    assert choices(old) == {}
    assert choices([*old, *new]) == choices(new)
    assert choices(new)[KERNEL].rule == today


def test_ratios_of_two_rules_are_not_compared() -> None:
    """Each is beside another default, and ScheduleKernel ignores what is chosen of another rule than the kernel's."""
    one, other = record(rule="cpu.gemv:2", seconds=0.8), record(rule="cpu.panels", seconds=0.7)
    assert choices([one])[KERNEL].rule == "cpu.gemv:2"
    assert choices([one, other]) == {}
    old = record(rule="cpu.matmul", seconds=0.7)
    assert choices([one, old]) == choices([one]), "packed matrices were its own before cpu.panels was there"


def test_less_than_noise_is_no_gain() -> None:
    assert choices([record(seconds=0.99)]) == {}
    assert choices([record(seconds=0.5, outcome=Outcome.MEASURED), record(outcome=Outcome.TIMED_OUT)]) == {}


@pytest.mark.parametrize(
    "changed", [{"kernel": "matmul"}, {"seconds": 0.0}, {"spread": -1.0}, {"shape": (("b", 1), ("a", 1))}]
)
def test_a_record_of_no_sense_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        record(**changed)


@pytest.mark.parametrize(
    "line", ["", "{}", "[]", '{"version":2}', record().line().replace('"chains":1', '"chains":[]')]
)
def test_what_is_no_record_is_told(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Record.read(line)


def test_a_torn_file_of_records_is_a_miss_and_others_are_read(tmp_path: Path) -> None:
    store = RecordStore(root=tmp_path)
    assert store.records(PLATFORM) == ()
    first, second = record(), record(seconds=0.25)
    assert store.add([first]) == 1
    assert store.add([first, second]) == 1
    assert set(store.records(PLATFORM)) == {first, second}
    torn = store.folder(PLATFORM) / f"{Segment.of([second]).name}.jsonl"
    torn.write_bytes(torn.read_bytes()[:-10])
    assert store.records(PLATFORM) == (first,)
    assert store.add([second]) == 1, "what was torn is written again"
    assert set(store.records(PLATFORM)) == {first, second}


def test_files_of_others_and_records_of_another_platform_count_for_nothing(tmp_path: Path) -> None:
    store = RecordStore(root=tmp_path)
    store.add([record()])
    folder = store.folder(PLATFORM)
    (folder / "notes.txt").write_text("hello")
    (folder / f"{'0' * 64}.jsonl").mkdir()
    store.add_segment(PLATFORM, Segment.of([record(platform="llvm-other-0")]))
    store.add_segment(PLATFORM, Segment(data=b"{}\n"))
    assert store.records(PLATFORM) == (record(),)
    assert store.platforms() == (PLATFORM,)


def test_two_who_record_at_once_lose_nothing(tmp_path: Path) -> None:
    given = [record(seconds=0.001 * number) for number in range(1, 81)]

    def add(part: list[Record]) -> None:
        store = RecordStore(root=tmp_path)
        for one in part:
            store.add([one])

    threads = [threading.Thread(target=add, args=(given[start : start + 50],)) for start in (0, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(RecordStore(root=tmp_path).records(PLATFORM)) == set(given)


def test_a_platform_is_named_by_what_decides_its_code() -> None:
    plain = {"kind": "cuda", "arch": "sm_90", "host": {"kind": "llvm", "mcpu": "x86-64-v3"}}
    assert platform_key(plain).startswith("cuda-sm_90-")
    assert platform_key(plain) == platform_key(plain | {"host": {}})
    assert platform_key(plain) != platform_key(plain | {"max_threads_per_block": 512})
    assert "/" not in platform_key({"kind": "llvm", "mcpu": "../x"})
