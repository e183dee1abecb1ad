"""Cells as the matrices of continuous integration: an entry is a job.

GitHub's is one line of JSON for `strategy.matrix: ${{ fromJSON(…) }}`
(https://docs.github.com/actions/reference/workflows-and-actions/expressions#fromjson), GitLab's is the YAML file of a
child pipeline (https://docs.gitlab.com/ci/pipelines/downstream_pipelines/#dynamic-child-pipelines).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mlcbuild.cli.matrix.cell import MatrixCell
from mlcbuild.errors import UsageError

_MOST_GITHUB_JOBS = 256  # of one matrix
_SAFE = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")  # a shell takes it as it is


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job. `shard` is "" or `1/4`; `label` and `axes` are those of a job for one cell."""

    name: str
    labels: tuple[str, ...]
    shard: str = ""
    label: str = ""
    axes: dict[str, str] = field(default_factory=dict)


def jobs_of_cells(cells: Sequence[MatrixCell], *, shard: str) -> list[Job]:
    """A job for each cell. `shard` is the one that all of them belong to."""
    return [
        Job(name=cell.label, labels=(cell.label,), shard=shard, label=cell.label, axes=cell.axes()) for cell in cells
    ]


def jobs_of_shards(cells: Sequence[MatrixCell], tests: Mapping[str, int], count: int) -> list[Job]:
    """A job for each shard that has cells or tests: `tests` has the number of each test's shard, by its label."""
    jobs = []
    for number in range(1, count + 1):
        labels = (
            *(cell.label for cell in cells if cell.shard == number),
            *(label for label, shard in tests.items() if shard == number),
        )
        if labels:
            jobs.append(Job(name=f"shard {number}/{count}", labels=labels, shard=f"{number}/{count}"))
    return jobs


def github_matrix(jobs: Sequence[Job]) -> str:
    """`{"include":[{"name":…,"targets":…,"label":…,"axes":{…},"shard":…}]}` in one line. Raises UsageError."""
    if len(jobs) > _MOST_GITHUB_JOBS:
        raise UsageError(
            f"GitHub runs at most {_MOST_GITHUB_JOBS} jobs of a matrix, and these are {len(jobs):,}",
            advice=("give each job several targets: --shards 16",),
        )
    entries = [
        {
            "name": job.name,
            "targets": _written(job.labels),
            "label": job.label,
            "axes": job.axes,
            "shard": job.shard,
        }
        for job in jobs
    ]
    return json.dumps({"include": entries}, separators=(",", ":"))


def gitlab_pipeline(jobs: Sequence[Job]) -> Iterator[str]:
    """The lines of a child pipeline. Raises UsageError.

    Each job extends `.mlcbuild`, whose script, image and the like a file may replace that the trigger includes as well.
    """
    yield "# A child pipeline, written by `mlcbuild matrix --output=gitlab`."
    yield ".mlcbuild:"
    yield "  script:"
    yield "    - mlcbuild build $MLCBUILD_TARGETS"
    if not jobs:
        # A pipeline without a job is an error.
        yield "nothing to build:"
        yield "  script:"
        yield "    - echo nothing to build"
    for job in jobs:
        yield f"{_quoted(job.name)}:"
        yield "  extends: .mlcbuild"
        yield "  variables:"
        variables = {"MLCBUILD_TARGETS": _written(job.labels), "MLCBUILD_SHARD": job.shard}
        variables |= {f"MATRIX_{axis.upper()}": value for axis, value in job.axes.items()}
        for name, value in variables.items():
            yield f"    {name}: {_quoted(value.replace('$', '$$'))}"


def _written(labels: Sequence[str]) -> str:
    """Labels as words of a command line."""
    for label in labels:
        if not _SAFE.fullmatch(label):
            raise UsageError(
                f"the name of {label} has signs that a shell reads in its own way",
                advice=("a list of targets for a job may have names of letters, digits and @%+=:,./_-",),
            )
    return " ".join(labels)


def _quoted(value: str) -> str:
    """A text in YAML, of which a string of JSON is one."""
    return json.dumps(value)
