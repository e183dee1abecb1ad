"""`mlcbuild show --ir` and `--changes`: outputs of actions as text."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.rendering.forms import Form
from mlcbuild.cli.rendering.renderer import Renderer, Rendering
from mlcbuild.engine.executor import FileEntry
from mlcbuild.errors import UsageError

IR_FORMS = frozenset({Form.MODULE, Form.EXECUTABLE, Form.NATIVE, Form.CUBIN, Form.FAT_BINARY, Form.TEXT})


@dataclass(frozen=True, kw_only=True)
class FilesOfAction:
    """The files of a cached result. `title` is the action for people; `outputs` are None if no result is cached."""

    title: str
    target: str
    inputs: tuple[FileEntry, ...]
    outputs: tuple[FileEntry, ...] | None


Note = Callable[[str], object]
"""Tells people something that is no result."""


@dataclass(frozen=True, kw_only=True)
class _Shown:
    title: str
    entry: FileEntry
    rendering: Rendering


def print_ir(actions: Sequence[FilesOfAction], renderer: Renderer, style: Style, note: Note) -> None:
    """Print the IR outputs of actions; of an action without any, its other texts. Raises UsageError without a result.

    If there is one text, it is printed alone, so that it can be kept as a file; else each has a heading.
    """
    rendered = _rendered(actions, renderer)
    texts = [each for each in rendered if not each.rendering.missing]
    for number, each in enumerate(texts):
        if len(texts) > 1:
            heading = f"# {each.title}: {each.entry.path}, {each.rendering.form.title}"
            print(("\n" if number else "") + style.bold(text.printable(heading)))
        print(text.printable(each.rendering.text), end="")
    print_missing(((f"{each.title}: {each.entry.path}", each.rendering) for each in rendered), note)


def print_missing(rendered: Iterable[tuple[str, Rendering]], note: Note) -> None:
    """Print a note for each reason for which files have no text, with the name of the first file."""
    reasons: dict[str, list[str]] = {}
    for name, rendering in rendered:
        if rendering.missing:
            reasons.setdefault(rendering.missing, []).append(name)
    for reason, names in reasons.items():
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        note(f"no text of {names[0]}{more}: {reason}")


def ir_documents(action: FilesOfAction, renderer: Renderer) -> list[dict[str, Any]]:
    """The texts of all outputs as JSON; an output without text has null and the reason."""
    outputs = _outputs(action)
    rendered = renderer.render(entry.digest for entry in outputs)
    return [_document(entry, rendered[entry.digest]) for entry in outputs]


def _document(entry: FileEntry, rendering: Rendering) -> dict[str, Any]:
    return {
        "path": entry.path,
        "form": rendering.form.title,
        "text": None if rendering.missing else rendering.text,
        "missing": rendering.missing,
    }


def print_changes(action: FilesOfAction, renderer: Renderer, style: Style) -> None:
    """Print the difference from an action's IR input to its IR output.

    Raises UsageError if it has not one of each, or no result.
    """
    pair = []
    for files in (action.inputs, _outputs(action)):
        modules = [entry for entry in files if renderer.form(entry.digest) is Form.MODULE]
        if len(modules) != 1:
            raise UsageError(
                f"{action.title} does not make one module of another",
                advice=("--changes is for phases and ScheduleKernel; --ir prints the outputs of any action",),
            )
        pair.append(modules[0])
    rendered = renderer.render(entry.digest for entry in pair)
    for entry in pair:
        if missing := rendered[entry.digest].missing:
            raise UsageError(f"no text of {entry.path}: {missing}")
    before, after = pair
    lines = text_difference(rendered[before.digest].text, rendered[after.digest].text, before.path, after.path)
    print("\n".join(colored_difference(lines, style)) if lines else "its output is equal to its input")


def text_difference(before: str, after: str, name_before: str, name_after: str) -> list[str]:
    """The unified difference of two texts; [] if they are equal."""
    return list(
        difflib.unified_diff(before.splitlines(), after.splitlines(), name_before, name_after, n=3, lineterm="")
    )


def colored_difference(lines: Iterable[str], style: Style) -> list[str]:
    """The lines with what is gone in red and what is new in green."""
    painted = []
    for line in map(text.printable, lines):
        if line.startswith(("---", "+++")):
            painted.append(style.bold(line))
        elif line.startswith("-"):
            painted.append(style.bad(line))
        elif line.startswith("+"):
            painted.append(style.good(line))
        elif line.startswith("@@"):
            painted.append(style.dim(line))
        else:
            painted.append(line)
    return painted


def _outputs(action: FilesOfAction) -> tuple[FileEntry, ...]:
    if action.outputs is None:
        raise UsageError(
            f"the disk cache has no result of {action.title}", advice=(f"`mlcbuild build {action.target}` makes it",)
        )
    return action.outputs


def _rendered(actions: Sequence[FilesOfAction], renderer: Renderer) -> list[_Shown]:
    chosen: list[tuple[FilesOfAction, FileEntry]] = []
    for action in actions:
        forms = {entry: renderer.form(entry.digest) for entry in _outputs(action)}
        has_ir = any(form in IR_FORMS for form in forms.values())
        chosen += [(action, entry) for entry, form in forms.items() if not has_ir or form in IR_FORMS]
    rendered = renderer.render(entry.digest for _, entry in chosen)
    return [_Shown(title=action.title, entry=entry, rendering=rendered[entry.digest]) for action, entry in chosen]
