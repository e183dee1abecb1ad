"""The summary at the end of a build."""

from __future__ import annotations

import pytest

from mlcbuild.cache.remote.counters import Counters, MissReason
from mlcbuild.cli.console import summary
from mlcbuild.cli.console.remote_summary import RemoteSummary, remote_document
from mlcbuild.engine.build_events import ActionStatus, BuildFinished, PathStep


def finished(
    *counts: int,
    seconds: float = 12.4,
    path: tuple[PathStep, ...] = (),
    interrupted: bool = False,
    down: int = 0,
    up: int = 0,
) -> BuildFinished:
    """Counts in the order of ActionStatus; missing ones are zero."""
    padded = (*counts, *[0] * (len(ActionStatus) - len(counts)))
    return BuildFinished(
        success=True,
        interrupted=interrupted,
        wall_seconds=seconds,
        counts=tuple(zip(ActionStatus, padded, strict=True)),
        critical_path=path,
        bytes_downloaded=down,
        bytes_uploaded=up,
    )


def ending(build: BuildFinished) -> list[str]:
    return summary.summary_lines(build, wall_seconds=build.wall_seconds)


def steps(*names_and_seconds: tuple[str, float]) -> tuple[PathStep, ...]:
    return tuple(
        PathStep(identifier=f"//models:llama {name}", mnemonic=name.split()[0], seconds=seconds)
        for name, seconds in names_and_seconds
    )


def test_the_summary_shows_every_source_of_results() -> None:
    path = steps(("Export", 4), ("Phase2", 3), ("CompileKernel fused_dequantize_matmul_3", 2.5), ("Link", 0.3))
    lines = ending(finished(44, 3, 9, 4, 2, path=path, down=18_000_000, up=2_000_000))
    assert lines == [
        "62 actions: 44 up to date, 3 from disk, 9 from remote, 6 ran (4 local, 2 ray) · 12.4 s · down 18 MB, up 2 MB",
        "critical path 9.8 s: Export → Phase2 → CompileKernel fused_dequantize_matmul_3 → Link",
    ]


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (finished(1, seconds=0.2), "1 action: 1 up to date · 0.2 s"),
        (finished(seconds=0.1), "0 actions · 0.1 s"),
        (finished(0, 0, 0, 5), "5 actions: 5 ran (5 local) · 12.4 s"),
        (finished(0, 0, 0, 0, 5), "5 actions: 5 ran (5 ray) · 12.4 s"),
        (finished(1, 0, 0, 2, 0, 0, 1, 7), "11 actions: 1 up to date, 2 ran (2 local), 1 failed, 7 skipped · 12.4 s"),
        (finished(0, 0, 1, down=400), "1 action: 1 from remote · 12.4 s · down 400 B"),
        (
            finished(0, 0, 0, 1, 0, 0, 0, 3, interrupted=True),
            "4 actions: 1 ran (1 local), 3 skipped · 12.4 s · interrupted",
        ),
    ],
)
def test_parts_that_would_say_zero_are_left_out(build: BuildFinished, line: str) -> None:
    assert ending(build) == [line]


def test_cached_steps_are_no_part_of_the_path() -> None:
    assert len(ending(finished(4, path=steps(("Export", 0), ("Link", 0))))) == 1
    assert ending(finished(4, path=steps(("Export", 0), ("Link", 1))))[1] == "critical path 1.0 s: Link"


def test_a_long_path_keeps_its_ends_and_longest_steps() -> None:
    path = steps(*((f"S{number}", 10 - abs(number - 10) * 0.1) for number in range(21)))
    line = ending(finished(0, 0, 0, 21, path=path))[1]
    assert line == "critical path 3 min 19 s: S0 → … → S7 → S8 → S9 → S10 → S11 → S12 → … → S20"


def test_a_path_through_several_targets_names_them_where_they_change() -> None:
    names = ("//m:model ImportWeights", "//m:package Quantize 0", "//m:package IndexWeights")
    path = tuple(PathStep(identifier=name, mnemonic=name.split()[1], seconds=1) for name in names)
    assert ending(finished(0, 0, 0, 3, path=path))[1] == (
        "critical path 3.0 s: //m:model ImportWeights → //m:package Quantize 0 → IndexWeights"
    )


def test_actions_that_targets_share_belong_to_none_and_hashes_are_shortened() -> None:
    kernel = f"CompileKernel kernel_{'0123456789abcdef' * 2} 0c2cf039"
    path = tuple(
        PathStep(identifier=name, mnemonic="M", seconds=1) for name in ("//m:x Partition", kernel, "//m:x Link")
    )
    assert ending(finished(0, 0, 0, 3, path=path))[1] == (
        "critical path 3.0 s: Partition → CompileKernel kernel_01234567… 0c2cf039 → Link"
    )


@pytest.mark.parametrize(
    ("counters", "line"),
    [
        (Counters(hits=9), ""),
        (Counters(misses=((MissReason.ABSENT, 1200),)), "remote s3://bucket: 1,200 missed (absent)"),
        (
            Counters(
                hits=3,
                misses=(
                    (MissReason.ABSENT, 5),
                    (MissReason.INVALID, 0),
                    (MissReason.UNSIGNED, 2),
                    (MissReason.TIMED_OUT, 1),
                ),
                results_uploaded=4,
                uploads_dropped=3,
                blobs_wrong=1,
                blobs_lost=2,
            ),
            "remote s3://bucket: 8 missed (5 absent, 2 unsigned, 1 timed out), 4 results sent, 3 not sent, "
            "1 blob damaged in transfer, 2 blobs missing",
        ),
    ],
)
def test_the_third_line_shows_what_the_remote_did(counters: Counters, line: str) -> None:
    end = RemoteSummary(addresses=("s3://bucket",), counters=counters)
    lines = summary.summary_lines(finished(1), wall_seconds=0, remote=end)
    assert lines[1:] == ([line] if line else [])
    document = remote_document(end)
    assert document["misses"] == {reason.name.lower(): count for reason, count in counters.misses}
