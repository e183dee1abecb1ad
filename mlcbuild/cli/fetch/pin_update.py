"""`mlcbuild fetch --update`: downloads the current files and writes their digests, and the commits of branches, into
BUILD.toml files."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.fetch.pin_edit import with_pins
from mlcbuild.cli.output.atomic_file import write_atomically
from mlcbuild.cli.output.errors import error_lines
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.errors import FetchError, LocalEnvironmentError, WorkspaceError
from mlcbuild.figures import shortened_list
from mlcbuild.rules.analysis import fetches
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.target import Target

PIN = "sha256"
_REVISION = "revision"


@dataclass(frozen=True, kw_only=True)
class _Observed:
    target: Target
    digest: str
    commit: str = ""  # of the branch that the target follows

    @property
    def table(self) -> tuple[str, int]:
        """The rule, and the index of the target's table among those of the rule."""
        rule, index = self.target.origin.keys[:2]
        assert isinstance(rule, str)
        assert isinstance(index, int)
        return rule, index

    @property
    def pins(self) -> dict[str, str]:
        """The values that differ from those of the target."""
        found = {_REVISION: self.commit, PIN: self.digest} if self.commit else {PIN: self.digest}
        return {name: value for name, value in found.items() if self.target.optional_string(name) != value}

    @property
    def change(self) -> str:
        old = self.target.optional_string(PIN) or ""
        return "new" if not old else "as pinned" if old == self.digest else f"was {old}"


def update_pins(patterns: tuple[str, ...], configuration: str, options: GlobalOptions) -> None:
    """Pin every fetched file that `patterns` need, and print a line for each: label, digest, and the former digest.

    Files that can be fetched are pinned even if others fail; then it raises FetchError.
    """
    from mlcbuild.execution.fetch import huggingface
    from mlcbuild.execution.fetch.observe import observe

    style = options.style(sys.stderr)
    opened = open_workspace(options.directory, to_load=True)
    loaded = opened.load(patterns, configuration)
    wanted = fetches(opened.analyse(loaded))
    for label, _ in wanted:
        _check_can_be_pinned(loaded.targets[label])
    observed: list[_Observed] = []
    failed: list[Label] = []
    for label, info in wanted:
        print(f"looking at {label}", file=sys.stderr)
        hints = dict(info.hints)
        commit = ""
        try:
            if hints.get("branch"):
                commit = hints["revision"] = huggingface.commit(hints)
                print(f"{hints['branch']} of {hints['repository']} is at {commit}", file=sys.stderr)
            digest = observe(info.kind, hints)
        except FetchError as error:
            options.tell(error_lines(error, style=style))
            failed.append(label)
            continue
        found = _Observed(target=loaded.targets[label], digest=digest, commit=commit)
        print(f"{label} {digest} {found.change}")
        observed.append(found)
    _write(opened.root, observed)
    if failed:
        raise FetchError(f"not pinned: {shortened_list([str(label) for label in failed])}")


def _check_can_be_pinned(target: Target) -> None:
    if target.cell:
        raise WorkspaceError(
            f"the pin of {target.label} cannot be written: all targets of its matrix share one table",
            location=target.location,
            advice=("write a separate table for each fetched file",),
        )


def _write(root: Path, observed: list[_Observed]) -> None:
    changed: dict[str, list[_Observed]] = defaultdict(list)
    for found in observed:
        if found.pins:
            changed[found.target.origin.file.path].append(found)
    for path, of_file in changed.items():
        text = of_file[0].target.origin.file.text
        try:
            write_atomically(root / path, with_pins(text, {found.table: found.pins for found in of_file}))
        except OSError as error:
            raise LocalEnvironmentError(f"{path} cannot be written: {error.strerror or error}") from error
        print(f"wrote {path}", file=sys.stderr)
