"""`mlcbuild matrix`: from the command line to what is printed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlcbuild.cli.arguments.choices import MatrixOutput
from mlcbuild.cli.arguments.options import RECORD_DIRECTORY, GlobalOptions
from mlcbuild.cli.build.targets import targets_of
from mlcbuild.cli.inspection.survey import surveying
from mlcbuild.cli.matrix.cell import CellState, MatrixCell
from mlcbuild.cli.matrix.continuous_integration import (
    github_matrix,
    gitlab_pipeline,
    jobs_of_cells,
    jobs_of_shards,
)
from mlcbuild.cli.matrix.grid import grid_lines
from mlcbuild.cli.matrix.states import cells_of
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import terminal_size
from mlcbuild.cli.settings.remote import RemoteOptions, resolve_remote
from mlcbuild.cli.sharding.measuring import measured_timings
from mlcbuild.cli.sharding.part import part_of
from mlcbuild.cli.sharding.selection import Split, split_targets
from mlcbuild.cli.sharding.timings_file import read_timings_files, write_timings_file
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.engine.timings import Timings
from mlcbuild.rules.providers import TestInfo
from mlcbuild.workspace.collector import without_collector


@dataclass(frozen=True, kw_only=True)
class MatrixRequest:
    """What the command line asks for. `shards` 0: nothing is split."""

    patterns: tuple[str, ...]
    configuration: str = ""
    overrides: tuple[str, ...] = ()
    disk_cache: Path | None = None
    remote: RemoteOptions = field(default_factory=RemoteOptions)
    shard: str = ""
    shards: int = 0
    timings: tuple[Path, ...] = ()
    would_run: bool = False  # take only cells of which a build would run actions
    write_timings: Path | None = None


@without_collector()
def print_matrix(request: MatrixRequest, output: MatrixOutput, options: GlobalOptions) -> None:
    """Print the cells. Raises MlcbuildError as a build does before it begins."""
    workspace = open_workspace(options.directory, to_load=True)
    loaded = workspace.load(request.patterns, request.configuration, request.overrides)
    remote = resolve_remote(request.remote, options.environment, workspace.settings)
    part = part_of(
        workspace.analyse(loaded, request.disk_cache), workspace.root, shard=request.shard, timings=request.timings
    )
    analysis = part.analysis
    for note in (*loaded.nothing_matches, *(part.notes[1:] if part.skipped else part.notes)):
        options.note(note)
    targets = targets_of(analysis.requested, output=f"{workspace.settings.output}/{loaded.configuration.name}")
    with surveying(
        workspace, analysis, targets, disk_cache=request.disk_cache, remote=remote, say=options.note
    ) as parts:
        record_directory = workspace.state_directory / RECORD_DIRECTORY
        cells = cells_of(loaded.targets, analysis, parts.survey, record_directory)
        if request.write_timings:
            labels = [target.label for target in targets]
            measured, unknown = measured_timings(labels, parts.survey, record_directory)
            known = [*([request.write_timings] if request.write_timings.exists() else []), *request.timings]
            write_timings_file(request.write_timings, Timings.merged([read_timings_files(known), measured]))
            if unknown:
                options.note(
                    f"{text.plural(len(unknown), 'target')} not measured here: a build would run actions of them"
                )
    if request.would_run:
        cells = tuple(cell for cell in cells if cell.runs)
    found, tests = None, dict[str, int]()
    if request.shards:
        # All targets are split, as `build --shard` does, or only what would run, which no other machine may know.
        wanted = analysis.narrowed({cell.target.label for cell in cells}) if request.would_run else analysis
        found = split_targets(wanted, request.shards, root=workspace.root, timings=request.timings)
        numbers = {label: number for number, shard in enumerate(found.shards, 1) for label in shard.labels}
        cells = tuple(replace(cell, shard=numbers.get(cell.label, 0)) for cell in cells)
        labels = [str(target.label) for target in wanted.requested if target.provided(TestInfo)]
        tests = {label: numbers[label] for label in labels if label in numbers}
    if not cells and not tests and loaded.requested:
        options.note("no target that patterns match would run" if request.would_run else "no targets match")
    _print(cells, found, tests, request, output, options)


def _print(
    cells: tuple[MatrixCell, ...],
    found: Split | None,
    tests: Mapping[str, int],
    request: MatrixRequest,
    output: MatrixOutput,
    options: GlobalOptions,
) -> None:
    if output is MatrixOutput.JSON:
        counts = Counter(cell.state for cell in cells)
        print_json(
            {
                "counts": {"total": len(cells), **{state.value: counts[state] for state in CellState}},
                "cells": [cell.document() for cell in cells],
                "split": None if found is None else found.document(),
            }
        )
        return
    if output is MatrixOutput.TEXT:
        width = terminal_size(sys.stdout)[0] if sys.stdout.isatty() else 80
        for line in grid_lines(cells, style=options.style(sys.stdout), width=width):
            print(line)
        if found is not None:
            print("\n".join(found.lines(width)))
        return
    built = [cell for cell in cells if cell.state is not CellState.SKIPPED]
    jobs = jobs_of_shards(built, tests, request.shards) if request.shards else jobs_of_cells(built, shard=request.shard)
    if output is MatrixOutput.GITHUB:
        print(github_matrix(jobs))
        return
    for line in gitlab_pipeline(jobs):
        print(line)
