"""What a command takes of the targets that patterns match: those that can be built, and of them one shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cli.output import text
from mlcbuild.cli.sharding.selection import parse_shard, split_targets, take_shard
from mlcbuild.cli.workspace.skipped import skipped_notes
from mlcbuild.rules.analysis import Analysis


@dataclass(frozen=True, kw_only=True)
class Part:
    """The analysis of what is taken. `notes` and `reasons` are lines for people, `skipped` are reasons by label."""

    analysis: Analysis
    notes: tuple[str, ...]
    skipped: Mapping[str, str]

    @property
    def reasons(self) -> list[str]:
        """Why targets are skipped, one a line."""
        return [f"skipped {label}: {reason}" for label, reason in self.skipped.items()]


def part_of(
    analysis: Analysis,
    root: Path,
    *,
    whole: Analysis | None = None,
    shard: str,
    timings: Sequence[Path],
    reasons: str = "-v tells why",
) -> Part:
    """What `--shard` takes; with "" everything. `whole` is what is split, where that is more: so a shard's tests are
    those of what the shard builds. `reasons` says how to find out why targets are skipped. Raises UsageError,
    WorkspaceError for a file of timings."""
    notes = skipped_notes(analysis, reasons=reasons)
    skipped = {str(label): reason for label, reason in analysis.skipped.items()}
    if shard:
        number = parse_shard(shard)
        found = split_targets(whole or analysis, number.count, root=root, timings=timings)
        notes.append(found.line(number))
        if found.estimated:
            few = ", ".join(found.estimated[:3]) + (", …" if len(found.estimated) > 3 else "")
            notes.append(f"{text.plural(len(found.estimated), 'target')} without timings, estimated: {few}")
        analysis = take_shard(analysis, found, number)
    return Part(analysis=analysis, notes=tuple(notes), skipped=skipped)
