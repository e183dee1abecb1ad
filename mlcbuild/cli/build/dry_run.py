"""`mlcbuild build --dry-run`: what would run, and why. Nothing runs, and no output is fetched or placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.build.targets import targets_of
from mlcbuild.cli.console.action_names import without_label
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.explain.explanation import Explanation
from mlcbuild.cli.explain.reasons import Reasons
from mlcbuild.cli.inspection.aquery import announces_unknown
from mlcbuild.cli.inspection.survey import surveying
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.settings.remote import RemoteOptions, resolve_remote
from mlcbuild.cli.sharding.part import part_of
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.engine.key_difference import Difference
from mlcbuild.engine.survey import ActionState, SurveyedAction
from mlcbuild.workspace.collector import without_collector

_MOST_NAMED = 3
_COUNTED = (
    (ActionState.UP_TO_DATE, "up to date", "up_to_date"),
    (ActionState.CACHED, "cached", "cached"),
    (ActionState.WOULD_RUN, "would run", "would_run"),
    (ActionState.WAITS, "waiting for these", "waits"),
    (ActionState.NO_KEY, "without a key", "no_key"),
)


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What the command line asks for."""

    patterns: tuple[str, ...]
    configuration: str = ""
    overrides: tuple[str, ...] = ()
    disk_cache: Path | None = None
    remote: RemoteOptions = field(default_factory=RemoteOptions)
    shard: str = ""
    timings: tuple[Path, ...] = ()
    verbose: bool = False  # tell why targets are skipped


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """An action that would run, or whose key is not known yet."""

    surveyed: SurveyedAction
    explanation: Explanation

    @property
    def sentence(self) -> str:
        """Without a name: `would run: model.txt changed`, `depends on //:model Partition`."""
        explained, surveyed = self.explanation, self.surveyed
        if surveyed.state is ActionState.WAITS:
            return f"depends on {explained.waits_for}"
        if surveyed.shared_with:
            return f"is the same action as {surveyed.shared_with}"
        reason = explained.why or _changes(explained)
        then = ", and then what it announces" if announces_unknown(surveyed) else ""
        return f"{explained.what}: {reason}{then}" if reason else f"{explained.what}{then}"

    def document(self) -> dict[str, object]:
        return {
            **self.explanation.document({}),
            "shared_with": self.surveyed.shared_with,
            "announces_more": announces_unknown(self.surveyed),
        }


@without_collector()
def print_dry_run(asked: DryRun, output: OutputFormat, options: GlobalOptions) -> ExitCode:
    """Print what a build would do. Raises MlcbuildError as a build does before it begins."""
    workspace = open_workspace(options.directory, to_load=True)
    loaded = workspace.load(asked.patterns, asked.configuration, asked.overrides)
    remote = resolve_remote(asked.remote, options.environment, workspace.settings)
    part = part_of(
        workspace.analyse(loaded, asked.disk_cache), workspace.root, shard=asked.shard, timings=asked.timings
    )
    analysis = part.analysis
    for note in (*loaded.nothing_matches, *part.notes):
        options.note(note)
    if asked.verbose and part.reasons:
        options.tell(part.reasons)
    targets = targets_of(analysis.requested, output=f"{workspace.settings.output}/{loaded.configuration.name}")
    if not targets and not asked.shard and loaded.requested:
        options.note("no targets match")
    with surveying(workspace, analysis, targets, disk_cache=asked.disk_cache, remote=remote, say=options.note) as parts:
        known = parts.survey.actions
        counts = Counter(each.state for each in known.values())
        pending = [
            _Pending(surveyed=known[explanation.identifier], explanation=explanation)
            for explanation in Reasons(parts.survey, StoredResults(asked.disk_cache)).now()
            if known[explanation.identifier].state is not ActionState.CACHED
        ]
    code = ExitCode.WOULD_RUN if pending else ExitCode.OK
    if output is OutputFormat.JSON:
        print_json(
            {
                "exit_code": int(code),
                "counts": {"total": len(known), **{name: counts[state] for state, _, name in _COUNTED}},
                "actions": [each.document() for each in pending],
                "skipped": part.skipped,
            }
        )
        return code
    options.show(_lines(pending))
    counted = ", ".join(f"{counts[state]:,} {shown}" for state, shown, _ in _COUNTED if counts[state])
    head = text.plural(len(known), "action")
    options.tell([f"{head}: {counted}" if counted else head])
    return code


def _lines(pending: Sequence[_Pending]) -> Iterator[str]:
    """A block for each target. Actions of one mnemonic with equal sentences share a line, and are named below it."""
    blocks: dict[str, dict[tuple[str, str], list[str]]] = {}
    for each in pending:
        action = each.surveyed.action
        lines = blocks.setdefault(action.owner, {})
        lines.setdefault((action.mnemonic, each.sentence), []).append(without_label(action.title))
    for owner, lines in blocks.items():
        yield owner
        for (mnemonic, sentence), names in lines.items():
            if len(names) == 1:
                yield text.printable(f"  {names[0]} {sentence}")
                continue
            yield text.printable(f"  {len(names):,} {mnemonic} {sentence}")
            named = [text.printable(name.removeprefix(f"{mnemonic} ")) for name in names]
            yield from text.listed(text.first_of(named, _MOST_NAMED), start="    ", indent=4)


def _changes(explained: Explanation) -> str:
    """The first change, and how many others there are: `model.txt changed, and 2 more changes`."""
    found = list(dict.fromkeys(_change(each, explained) for each in explained.differences))
    if len(found) < 2:
        return "".join(found)
    return f"{found[0]}, and {text.plural(len(found) - 1, 'more change')}"


def _change(each: Difference, explained: Explanation) -> str:
    change = "changed" if each.before and each.now else "is new" if each.now else "is gone"
    match each.kind:
        case "input":
            source = explained.source_path(each.name)
            return f"{source} {change}" if source else f"an output of {explained.maker_title(each.name)} {change}"
        case "parameter" if each.inside:
            path, before, now = each.inside[0]
            return f"parameter {path}: {before or 'none'} → {now or 'none'}"
        case "parameter":
            return f"parameter {each.name}: {each.before or 'none'} → {each.now or 'none'}"
        case "implementation":
            return f"code {each.code[0]}" if each.code else "its code changed"
        case kind:
            return f"{kind} {each.name} {change}".replace("  ", " ")
