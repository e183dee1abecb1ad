"""Prints explanations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from mlcbuild.cache.digest import Digest
from mlcbuild.cli.explain.explanation import Explanation, KernelChange
from mlcbuild.cli.explain.text_diff import component_digest, text_diff
from mlcbuild.cli.output import text
from mlcbuild.engine.key_difference import Difference

_SHOWN_DIGITS = 12
_MOST_CHANGES = 12  # functions, kernels and parts of a parameter shown of one action
_MOST_NAMED = 3
_WIDTH = 11

_NONE = "none"
ReadBlob = Callable[[Digest], bytes | None]


def file_diffs(
    explanations: Iterable[Explanation],
    read: ReadBlob,
    workspace_file: Callable[[str], bytes | None],
    former_file: Callable[[str], bytes | None] = lambda _: None,
) -> dict[str, list[str]]:
    """The text diffs of the source files that differ, by path. A file that is no text, or has gone, has none.

    Contents come from `read`, the disk cache. `workspace_file` and `former_file` have those that no build has read.
    """
    found: dict[str, list[str]] = {}
    for explanation in explanations:
        for each in explanation.differences:
            path = explanation.source_path(each.name) if each.kind == "input" else ""
            if path and path not in found and each.before and each.now:
                before, now = read(component_digest(each.before)), read(component_digest(each.now))
                if before is None:
                    before = former_file(path)
                if now is None:
                    now = workspace_file(path)
                found[path] = text_diff(before, now)
    return found


def lines_of_diffs(diffs: Mapping[str, list[str]]) -> frozenset[str]:
    """The lines of text diffs as explanations have them, which are not wrapped."""
    return frozenset(_diff_line(line) for diff in diffs.values() for line in diff)


def explanation_lines(
    explanations: Sequence[Explanation], diffs: Mapping[str, list[str]], version_of: Callable[[str], str]
) -> list[str]:
    """A block for each action; equal actions of one kind share a block."""
    grouped: dict[tuple[str, ...], list[Explanation]] = {}
    for each in explanations:
        lines = _reasons(each, diffs, version_of)
        grouped.setdefault((each.mnemonic, each.owner, each.what, each.why, *lines), []).append(each)
    shown = []
    for (_, _, what, why, *lines), members in grouped.items():
        first = members[0]
        name = first.title if len(members) == 1 else f"{first.owner}: {len(members):,} {first.mnemonic}"
        what = what if len(members) == 1 else what.replace("differs", "differ").replace("makes", "make")
        shown.append(f"{text.printable(name)} {_predicate(first, what, why, has_reasons=bool(lines))}")
        if len(members) > 1:
            named = [text.printable(each.title.removeprefix(f"{each.owner} {each.mnemonic} ")) for each in members]
            shown += text.listed(text.first_of(named, _MOST_NAMED), start=_row("actions", ""), indent=_WIDTH + 2)
        shown += lines
    return shown


def _predicate(first: Explanation, what: str, why: str, *, has_reasons: bool) -> str:
    if what == "waits":
        waits = f"waits for {first.waits_for}" if first.waits_for else "waits"
        return f"{waits}, and has changed itself" if has_reasons else waits
    reason = text.printable(why)
    return f"{what}: {reason}" if reason else what


def _reasons(explanation: Explanation, diffs: Mapping[str, list[str]], version_of: Callable[[str], str]) -> list[str]:
    lines: list[str] = []
    made: dict[str, Counter[str]] = {}
    for each in explanation.differences:
        if each.kind == "input" and not explanation.source_path(each.name) and explanation.maker_of(each.name):
            maker = explanation.maker_title(each.name)
            made.setdefault(maker, Counter())[
                "changed" if each.before and each.now else "new" if each.now else "gone"
            ] += 1
    for maker, counts in made.items():
        # A changed kernel has another name: its output is a new file, and the former one is gone.
        count = counts["changed"] + max(counts["new"], counts["gone"])
        lines.append(_row("input", f"{text.plural(count, 'output')} of {maker} changed"))
    for each in explanation.differences:
        if each.kind == "input" and not explanation.source_path(each.name) and explanation.maker_of(each.name):
            continue
        lines += _difference(each, explanation, diffs, version_of)
    lines += _kernels(explanation.kernels)
    return [text.printable(line) for line in lines]


def _difference(
    each: Difference, explanation: Explanation, diffs: Mapping[str, list[str]], version_of: Callable[[str], str]
) -> list[str]:
    change = "changed" if each.before and each.now else "is new" if each.now else "is gone"
    match each.kind:
        case "input":
            path = explanation.source_path(each.name)
            shown = explanation.maker_title(each.name) or each.name
            return [_row("file", f"{shown} {change}"), *map(_diff_line, diffs.get(path, ()))]
        case "parameter":
            inside = each.inside or ((each.name, each.before, each.now),)
            rows = [_row("parameter", f"{path}: {old or _NONE} → {new or _NONE}") for path, old, new in inside]
            return _some(rows)
        case "toolchain":
            version = version_of(each.name)
            now = f", now {version}" if version and each.now else ""
            return [_row("toolchain", f"{each.name}: {_short(each.before)} → {_short(each.now)}{now}")]
        case "implementation":
            if not each.code:
                unknown = "the functions of the former code are no longer in the disk cache"
                return [_row("code", f"{_short(each.before)} → {_short(each.now)}; {unknown}")]
            return _some([_row("code", str(change)) for change in each.code])
        case kind:
            name = f"{each.name}: " if each.name else ""
            return [_row(kind, f"{name}{each.before or _NONE} → {each.now or _NONE}")]


def _kernels(kernels: Sequence[KernelChange]) -> list[str]:
    blocks = []
    for each in kernels:
        if each.before and each.now:
            differs = each.before.rpartition(" (")[0] != each.now.rpartition(" (")[0]
            head = _row("kernel", f"{each.before} → {each.now if differs else _content_name(each.now)}")
        else:
            head = _row("kernel", f"{each.now or each.before} is {'new' if each.now else 'gone'}")
        functions = [f"in {each.functions[0]}", *each.functions[1:]] if each.functions else []
        blocks.append(text.listed(functions, start=f"{head} " if functions else head, indent=_WIDTH + 4))
    shown = [line for block in blocks[:_MOST_CHANGES] for line in block]
    return [*shown, *_more(len(blocks))]


def _content_name(title: str) -> str:
    """`(ed710c27)` of `rms_norm n×576 (ed710c27)`, which is all that differs from the former title."""
    return title[title.rfind("(") :] if title.endswith(")") else title


def _some(rows: list[str]) -> list[str]:
    return [*rows[:_MOST_CHANGES], *_more(len(rows))]


def _more(count: int) -> list[str]:
    return [_row("", f"and {count - _MOST_CHANGES:,} more")] if count > _MOST_CHANGES else []


def _diff_line(line: str) -> str:
    return text.printable(f"    {line}")


def _row(kind: str, value: str) -> str:
    return f"  {kind:<{_WIDTH}}{value}"


def _short(value: str | None) -> str:
    return value[:_SHOWN_DIGITS] if value else _NONE
