"""`mlcbuild show --dump DIR`: every stage of a target as text, in numbered folders.

The dump is made beside DIR and moved there when it is whole. A DIR that is no dump, and not empty, is left alone.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from mlcbuild.cli.rendering.forms import Form
from mlcbuild.cli.rendering.renderer import Renderer
from mlcbuild.cli.show.passes import dumped_passes, has_passes
from mlcbuild.engine.action import Action
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.survey import SurveyedAction
from mlcbuild.errors import UsageError

INDEX = "index.txt"
_FIRST_LINE = "mlcbuild dump of "
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")
_KERNEL = re.compile(r"kernel_[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class DumpedAction:
    """An action with the files of its result."""

    surveyed: SurveyedAction
    outputs: tuple[FileEntry, ...]

    @property
    def action(self) -> Action:
        return self.surveyed.action


@dataclass(kw_only=True)
class Dump:
    """What was written: paths below the folder, and for files without text the reasons."""

    files: list[str] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)


def check_folder(folder: Path) -> None:
    """Raise UsageError unless the folder is absent, empty, or a dump."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise UsageError(f"{folder} is not a folder", advice=("give another folder",)) from None
    if not names:
        return
    try:
        first = (folder / INDEX).read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        first = ""
    if not first.startswith(_FIRST_LINE):
        raise UsageError(
            f"{folder} is not empty, and has no dump", advice=("give an empty folder, or one that is not there yet",)
        )


def write_dump(label: str, actions: Sequence[DumpedAction], folder: Path, renderer: Renderer, *, passes: bool) -> Dump:
    """Write the dump and put it in the place of `folder`. Raises OSError, and MlcbuildError if stages cannot run."""
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    made.chmod(0o755)
    try:
        dump = _written(label, actions, made, renderer, passes=passes)
        _put_in_place(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return dump


def _put_in_place(made: Path, folder: Path) -> None:
    """`made` becomes `folder`; a former dump is removed after that."""
    former = made.with_name(f"{made.name}-former")
    if folder.exists():
        folder.rename(former)
    made.rename(folder)
    shutil.rmtree(former, ignore_errors=True)


def _written(label: str, actions: Sequence[DumpedAction], folder: Path, renderer: Renderer, *, passes: bool) -> Dump:
    dump = Dump()
    rendered = renderer.render(entry.digest for each in actions for entry in each.outputs)
    index = [f"{_FIRST_LINE}{label}"]
    readable = _readable(actions)
    with ExitStack() as stack:
        phases = [each.surveyed for each in actions if has_passes(each.action)] if passes else []
        by_pass = stack.enter_context(dumped_passes(phases, renderer.runner)) if phases else {}
        for place, each in _places(actions):
            index += [
                "",
                f"{place}  {each.action.title}",
                f"  key {each.surveyed.key.hash if each.surveyed.key else ''}",
            ]
            for entry in each.outputs:
                rendering = rendered[entry.digest]
                if rendering.missing:
                    dump.missing.append((f"{each.action.title}: {entry.path}", rendering.missing))
                    index.append(f"  {entry.path}: {rendering.missing}")
                    continue
                name = f"{place}/{_file_name(entry.path, rendering.form, readable)}"
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(rendering.text, encoding="utf-8")
                dump.files.append(name)
                index.append(f"  {name}")
            if dumped := by_pass.get(each.action.identifier):
                if dumped.failure:
                    dump.missing.append((f"{each.action.title}: passes", dumped.failure))
                for name, source in sorted(dumped.files.items()):
                    path = folder / place / "passes" / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, path)
                    dump.files.append(f"{place}/passes/{name}")
                    index.append(f"  {place}/passes/{name}")
    (folder / INDEX).write_text("\n".join(index) + "\n", encoding="utf-8")
    dump.files.insert(0, INDEX)
    return dump


def _places(actions: Sequence[DumpedAction]) -> Iterator[tuple[str, DumpedAction]]:
    """The folder of each action: one a mnemonic, numbered in the order of the pipeline. Announced actions of no kernel,
    such as those of shards, have folders of their own in it.
    """
    groups: dict[str, list[DumpedAction]] = {}
    for each in actions:
        groups.setdefault(each.action.mnemonic, []).append(each)
    for number, (mnemonic, group) in enumerate(groups.items(), start=1):
        for each in group:
            place = f"{number:02}-{mnemonic}"
            if len(group) > 1 and not each.action.description:
                rest = each.action.identifier.removeprefix(f"{each.action.owner} {mnemonic}").strip()
                place += f"/{_safe(rest)}"
            yield place, each


def _readable(actions: Sequence[DumpedAction]) -> dict[str, str]:
    """The readable names of kernels by the names of their contents."""
    names = {}
    for each in actions:
        description = each.action.description
        kernel = str(dict(description.details).get("kernel", "")) if description else ""
        if description and kernel and kernel not in names:
            names[kernel] = _safe(description.text)
    return names


def _safe(name: str) -> str:
    """`add n×2048 decode+1 (a1b2c3d4)` as `add-nx2048-decode+1-a1b2c3d4`."""
    return _UNSAFE.sub("-", name.replace("×", "x").replace("·", "")).strip("-")


def _file_name(path: str, form: Form, readable: dict[str, str]) -> str:
    """The name of the text of an output, with a kernel's readable name and the ending of its form."""
    name = path.removeprefix("out/")
    if form.suffix and form is not Form.JSON:
        name = str(PurePosixPath(name).with_suffix(form.suffix))
    return _KERNEL.sub(lambda found: readable.get(found[0], found[0]), name)
