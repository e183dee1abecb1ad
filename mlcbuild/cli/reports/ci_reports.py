"""What a command writes for CI systems when it ends: `--junit`, `--job-summary`, `--code-quality`, `--annotations`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cli.arguments.choices import AnnotationsChoice
from mlcbuild.cli.output.atomic_file import write_atomically, write_json_atomically
from mlcbuild.cli.reports.annotations import github_lines, on_github
from mlcbuild.cli.reports.finished_build import FinishedBuild


@dataclass(frozen=True, kw_only=True)
class CiReports:
    """The files to write, None for none. The job summary is appended to its file."""

    junit: Path | None = None
    job_summary: Path | None = None
    code_quality: Path | None = None
    annotations: AnnotationsChoice = AnnotationsChoice.NONE

    def files(self) -> tuple[tuple[str, Path | None], ...]:
        """The options with their files."""
        return (
            ("--junit", self.junit),
            ("--job-summary", self.job_summary),
            ("--code-quality", self.code_quality),
        )

    def annotates(self, environment: Mapping[str, str]) -> bool:
        """Whether errors are printed for GitHub. By default only its jobs ask for that."""
        auto = self.annotations is AnnotationsChoice.AUTO and on_github(environment)
        return auto or self.annotations is AnnotationsChoice.GITHUB

    def wanted(self, environment: Mapping[str, str]) -> bool:
        return any(path for _, path in self.files()) or self.annotates(environment)

    def write(self, build: FinishedBuild, *, root: Path | None, environment: Mapping[str, str]) -> list[str]:
        """Write all that is asked for; returns what could not be written, and why. `root` is the workspace's."""
        from mlcbuild.cli.reports.code_quality import code_quality_document
        from mlcbuild.cli.reports.findings import findings

        found = findings(build, root=root, environment=environment)
        errors = []
        if self.junit:
            from mlcbuild.cli.reports.junit import junit_text

            errors += _tried(self.junit, lambda path: write_atomically(path, junit_text(build)))
        if self.job_summary:
            from mlcbuild.cli.reports.job_summary import append_job_summary

            errors += _tried(self.job_summary, lambda path: append_job_summary(path, build))
        if self.code_quality:
            errors += _tried(self.code_quality, lambda path: write_json_atomically(path, code_quality_document(found)))
        if self.annotates(environment):
            for line in github_lines(found):
                print(line, file=sys.stderr, flush=True)
        return errors


def _tried(path: Path, write: Callable[[Path], object]) -> list[str]:
    try:
        write(path)
    except OSError as error:
        return [f"{path}: {error.strerror or error}"]
    return []
