"""`--shard I/N`: the part of the targets that this machine takes.

The split depends on the workspace and on the timings given, and not on caches, history or the machine. So machines that
split the same commit with the same timings take parts that together are the whole.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cli.output import text
from mlcbuild.cli.sharding.timings_file import read_timings_files
from mlcbuild.engine.declared_work import declared_work
from mlcbuild.engine.shards import Shard, Work, split
from mlcbuild.errors import UsageError
from mlcbuild.rules.analysis import Analysis
from mlcbuild.rules.expected_seconds import expected_announced_seconds, expected_seconds
from mlcbuild.rules.providers import FilesInfo, TestInfo

MOST_SHARDS = 1000
_SHARD = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")
_SHOWN_DIGITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardNumber:
    """One of `count` shards; `index` counts from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(frozen=True, kw_only=True)
class Split:
    """All shards. `estimated` are the targets that timings do not have. Without timings seconds are only ratios."""

    shards: tuple[Shard, ...]
    whole_seconds: float  # of all targets on one machine
    estimated: tuple[str, ...]
    has_timings: bool

    @property
    def name(self) -> str:
        """Some digits that are equal on machines with equal splits."""
        content = "\n\n".join("\n".join(shard.labels) for shard in self.shards)
        return hashlib.sha256(content.encode()).hexdigest()[:_SHOWN_DIGITS]

    def document(self) -> dict[str, object]:
        """The split as JSON. Without timings `seconds` are estimated."""
        return {
            "name": self.name,
            "has_timings": self.has_timings,
            "seconds": round(self.whole_seconds, 3),
            "shards": [
                {"shard": number, "seconds": round(shard.seconds, 3), "targets": list(shard.labels)}
                for number, shard in enumerate(self.shards, 1)
            ],
        }

    def lines(self, width: int) -> list[str]:
        """A line for each shard, and its targets."""
        lines = []
        for index, shard in enumerate(self.shards, 1):
            lines.append(self.line(ShardNumber(index=index, count=len(self.shards))))
            labels = textwrap.wrap(
                ", ".join(shard.labels),
                width,
                initial_indent="  ",
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines += labels
        return lines

    def line(self, number: ShardNumber) -> str:
        """`shard 1/2: 14 of 27 targets, about 2 min 05 s of 3 min 58 s; split 1f0c77ab`, or a share of the work."""
        shard = self.shards[number.index - 1]
        total = sum(len(each.labels) for each in self.shards)
        if self.has_timings:
            about = f"about {text.seconds(shard.seconds)} of {text.seconds(self.whole_seconds)}"
        else:
            about = f"about {100 * shard.seconds / self.whole_seconds if self.whole_seconds else 0:.0f}% of the work"
        return f"shard {number}: {len(shard.labels):,} of {text.plural(total, 'target')}, {about}; split {self.name}"


def parse_shard(written: str) -> ShardNumber:
    """The argument of `--shard`. Raises UsageError."""
    found = _SHARD.fullmatch(written)
    number = ShardNumber(index=int(found[1]), count=int(found[2])) if found else None
    if number is None or not 1 <= number.index <= number.count <= MOST_SHARDS:
        raise UsageError(
            f'--shard: "{written}" is not I/N',
            advice=(f"I counts from 1 to N, and N is at most {MOST_SHARDS}: --shard 1/4 to --shard 4/4",),
        )
    return number


def split_targets(analysis: Analysis, count: int, *, root: Path, timings: Sequence[Path]) -> Split:
    """Split the requested targets. Raises UsageError, WorkspaceError for a file of timings."""
    wanted = {}
    for target in analysis.requested:
        test = target.provided(TestInfo)
        files = test.files if test else target.provided(FilesInfo) or FilesInfo()
        wanted[str(target.label)] = [artifact for _, artifact in files.files]
    estimated = declared_work(
        wanted,
        analysis.actions,
        root=root,
        seconds_of=expected_seconds,
        announced_seconds_of=expected_announced_seconds,
    )
    measured = read_timings_files(timings).work
    work = _joined(estimated, measured)
    without = [label for label in sorted(wanted) if label not in measured.needs and estimated.needs[label]]
    return Split(
        shards=split(work, count),
        whole_seconds=work.on_one_machine(wanted),
        estimated=tuple(without) if timings else (),
        has_timings=bool(timings),
    )


def take_shard(analysis: Analysis, found: Split, number: ShardNumber) -> Analysis:
    """The analysis with the targets of one shard alone requested, and what they need."""
    labels = found.shards[number.index - 1].labels
    return analysis.narrowed({target.label for target in analysis.requested if str(target.label) in labels})


def _joined(estimated: Work, measured: Work) -> Work:
    """Measured work where there is some, else estimated, in the measure of what was measured."""
    known = [label for label in estimated.needs if label in measured.needs]
    in_estimate, in_fact = estimated.on_one_machine(known), measured.on_one_machine(known)
    factor = in_fact / in_estimate if in_fact and in_estimate else 1.0
    return Work(
        needs={
            label: measured.needs.get(label) or frozenset(f"~{name}" for name in names)
            for label, names in estimated.needs.items()
        },
        seconds={**measured.seconds, **{f"~{name}": factor * value for name, value in estimated.seconds.items()}},
    )
