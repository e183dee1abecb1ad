"""`mlcbuild diff --ir`: how outputs of differing actions differ as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcbuild.cli.diff.comparison import ComparedAction, Outcome
from mlcbuild.cli.rendering.renderer import Renderer, Rendering
from mlcbuild.cli.show.ir import IR_FORMS, text_difference
from mlcbuild.engine.executor import FileEntry
from mlcbuild.errors import MlcbuildError


@dataclass(frozen=True, kw_only=True)
class OutputDifference:
    """The unified difference of an output of two actions. `missing` says why there is none."""

    action: str
    path: str
    lines: tuple[str, ...] = ()
    missing: str = ""


def has_ir_to_compare(compared: ComparedAction, mnemonic: str) -> bool:
    """Whether its outputs are to be compared: of what differs by itself, or of what `mnemonic` names."""
    outcomes = (Outcome.DIFFERS, Outcome.FOLLOWS) if mnemonic else (Outcome.DIFFERS,)
    return compared.outcome in outcomes and not compared.has_equal_outputs


def ir_differences(actions: Sequence[ComparedAction], renderer: Renderer) -> list[OutputDifference]:
    """The differences of the IR outputs, in the order of the actions. Files of output directories are left out: other
    actions read them one by one.
    """
    found: list[OutputDifference] = []
    wanted: list[tuple[ComparedAction, str, FileEntry, FileEntry]] = []
    for compared in actions:
        assert compared.before
        assert compared.now
        old, new = compared.before.outputs(), compared.now.outputs()
        if old is None or new is None:
            when = "before" if old is None else "now"
            reason = f"no cache that was asked has a result of it as it is {when}"
            found.append(OutputDifference(action=compared.shown.title, path="", missing=reason))
            continue
        for side, files in ((compared.before, old), (compared.now, new)):
            side.fetch(each.digest for each in _files(files))
        former = {_name(each.path, compared.before.kernel): each for each in _files(old)}
        for entry in _files(new):
            other = former.get(_name(entry.path, compared.now.kernel))
            if other is not None and other.digest != entry.digest and _is_ir(entry, renderer):
                wanted.append((compared, entry.path, other, entry))
    rendered = renderer.render(each.digest for _, _, *pair in wanted for each in pair)
    for compared, path, before, now in wanted:
        found.append(_difference(compared, path, rendered[before.digest], rendered[now.digest]))
    return [each for each in found if each.lines or each.missing]


def _difference(compared: ComparedAction, path: str, before: Rendering, now: Rendering) -> OutputDifference:
    assert compared.before
    assert compared.now
    title = compared.shown.title
    if missing := before.missing or now.missing:
        return OutputDifference(action=title, path=path, missing=missing)
    former = before.text
    if compared.before.kernel and compared.before.kernel != compared.now.kernel:
        former = former.replace(compared.before.kernel, compared.now.kernel)
    names = (f"{compared.before.title}: {path} before", f"{compared.now.title}: {path} now")
    return OutputDifference(action=title, path=path, lines=tuple(text_difference(former, now.text, *names)))


def _files(entries: Sequence[FileEntry]) -> list[FileEntry]:
    """Those that are not in an output directory. Outputs lie in `out/`."""
    return [each for each in entries if each.path.count("/") <= 1]


def _name(path: str, kernel: str) -> str:
    return path.replace(kernel, "KERNEL") if kernel else path


def _is_ir(entry: FileEntry, renderer: Renderer) -> bool:
    try:
        return renderer.form(entry.digest) in IR_FORMS
    except MlcbuildError:
        return False
