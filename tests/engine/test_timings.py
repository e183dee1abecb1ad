"""Files of timings: what is written is read again, and files of several machines are merged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.engine.shards import Work
from mlcbuild.engine.timings import Timings, action_name, read_timings
from mlcbuild.errors import WorkspaceError

NAMES = st.sampled_from([action_name(mnemonic, f"{key:064x}") for mnemonic in ("Export", "Link") for key in range(6)])


@st.composite
def timings(draw: st.DrawFn) -> Timings:
    needs = draw(st.dictionaries(st.sampled_from(["//:a", "//:b", "//m:c"]), st.frozensets(NAMES, min_size=1)))
    names = frozenset[str]().union(*needs.values())
    seconds = {name: draw(st.integers(0, 10_000)) / 100 for name in sorted(names)}
    return Timings(work=Work(needs=needs, seconds=seconds))


def text(value: Timings) -> str:
    return json.dumps(value.document())


@settings(max_examples=100, deadline=None)
@given(timings())
def test_what_is_written_is_read_again(value: Timings) -> None:
    assert read_timings(text(value), "t.json") == value


@settings(max_examples=100, deadline=None)
@given(timings(), timings())
def test_of_merged_files_the_last_one_counts_for_each_target(first: Timings, second: Timings) -> None:
    merged = Timings.merged([first, second])
    assert merged.work.needs == {**first.work.needs, **second.work.needs}
    assert merged.work.seconds.keys() == frozenset[str]().union(*merged.work.needs.values())
    assert read_timings(text(merged), "t.json") == merged
    assert Timings.merged([merged, merged]) == merged


def test_groups_are_the_targets_that_share_actions() -> None:
    work = Work(
        needs={"//:b": frozenset({"Export 1", "Link 2"}), "//:a": frozenset({"Export 1", "Link 1"})},
        seconds={"Export 1": 6.2, "Link 2": 0.126, "Link 1": 0.1},
    )
    assert Timings(work=work).document() == {
        "format": "mlcbuild timings",
        "version": 1,
        "groups": [
            {"targets": ["//:a"], "seconds": {"Link 1": 0.1}},
            {"targets": ["//:a", "//:b"], "seconds": {"Export 1": 6.2}},
            {"targets": ["//:b"], "seconds": {"Link 2": 0.13}},
        ],
    }


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{\n  x}", "t.json:2:3: not valid JSON"),
        ("[]", 't.json: not a file of timings: it lacks "format"'),
        ('{"format": "mlcbuild timings", "version": 2}', "t.json: timings of version 2: this mlcbuild reads version 1"),
        ('{"format": "mlcbuild timings", "version": 1}', 't.json: group 0 of "groups" is not a table'),
        (
            '{"format": "mlcbuild timings", "version": 1, "groups": [{"targets": ["//:a"], "seconds": {"x": -1}}]}',
            't.json: group 0 of "groups" is not a table',
        ),
        (
            '{"format": "mlcbuild timings", "version": 1, "groups": [{"targets": ["//:a"], "seconds": {"x": 1}}, '
            '{"targets": ["//:b"], "seconds": {"x": 1}}]}',
            't.json: "x" is in two groups',
        ),
    ],
)
def test_damaged_files_are_told(written: str, message: str) -> None:
    with pytest.raises(WorkspaceError) as caught:
        read_timings(written, "t.json")
    assert str(caught.value).startswith(message)
