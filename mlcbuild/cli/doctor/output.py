"""`mlcbuild doctor`: prints findings as they come, or as one JSON object, and chooses the exit code."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.doctor.parts import Parts
from mlcbuild.cli.exit_codes import ExitCode, retry_line
from mlcbuild.cli.output import text
from mlcbuild.cli.output.errors import DEBUG_VARIABLE
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.slow_progress import SlowProgress
from mlcbuild.cli.output.terminal import OutputFormat, Style, is_terminal
from mlcbuild.cli.settings.execution import ExecutionOptions
from mlcbuild.cli.settings.remote import RemoteOptions
from mlcbuild.doctor.examination import Examined, examine_all
from mlcbuild.doctor.finding import FindingCause, Verdict

_VERDICT_WIDTH = max(len(verdict.value) for verdict in Verdict)
_NAME_WIDTH = 17
_INDENT = "  "
# The first cause of any error decides: those that a retry does not fix come first.
_CODES = {
    FindingCause.SETTINGS: ExitCode.COMMAND_LINE,
    FindingCause.TARGETS: ExitCode.ANALYSIS_FAILED,
    FindingCause.MACHINE: ExitCode.LOCAL_ENVIRONMENT,
    FindingCause.MLCBUILD: ExitCode.INTERNAL,
}


def run_doctor(
    names: Sequence[str],
    disk_cache: Path | None,
    remote: RemoteOptions,
    execution: ExecutionOptions,
    output: OutputFormat,
    options: GlobalOptions,
) -> ExitCode:
    """Examine, print, and return the exit code of the findings. Raises UsageError for an unknown part."""
    parts = Parts(disk_cache, remote, execution, options).chosen(names)
    slow = _Progress(options)
    examined = _watched(examine_all(parts, tick=slow.tick), slow, options)
    if output is OutputFormat.JSON:
        found = list(examined)
        code = exit_code(found)
        print_json(document(found, code))
        return code
    found = []
    style = options.style(sys.stdout)
    for each in examined:
        is_first = not found or found[-1].part is not each.part
        lines = [*([""] * bool(found)), style.bold(each.part.title)] if is_first else []
        print("\n".join([*lines, *finding_lines(each, style, options.width(sys.stdout))]), flush=True)
        found.append(each)
    print(f"\n{summary(found)} · {text.seconds(options.elapsed())}")
    code = exit_code(found)
    if line := retry_line(code):
        options.tell([line])
    return code


def finding_lines(examined: Examined, style: Style, width: int = 0) -> list[str]:
    """One line for the finding, and below it one for each hint, wrapped to `width` columns unless it is 0."""
    finding = examined.finding
    paint = {Verdict.OK: style.good, Verdict.WARNING: style.warning, Verdict.ERROR: style.error}
    verdict = paint.get(finding.verdict, style.dim)(f"{finding.verdict.value:<{_VERDICT_WIDTH}}")
    first = f"{_INDENT}{verdict}  {examined.name:<{_NAME_WIDTH}} {text.printable(finding.measured)}"
    margin = " " * (len(_INDENT) + _VERDICT_WIDTH + 2)
    hints = (f"{margin}{text.printable(hint)}" for hint in finding.advice)
    beside = len(margin) + _NAME_WIDTH + 1 - len(_INDENT)
    return [*text.wrapped([first], width, indent=beside), *text.wrapped(hints, width)]


def summary(found: Sequence[Examined]) -> str:
    counts = Counter(each.finding.verdict for each in found)
    words = {
        Verdict.ERROR: text.plural(counts[Verdict.ERROR], "error"),
        Verdict.WARNING: text.plural(counts[Verdict.WARNING], "warning"),
        Verdict.OK: f"{counts[Verdict.OK]} ok",
        Verdict.SKIPPED: f"{counts[Verdict.SKIPPED]} skipped",
    }
    counted = ", ".join(word for verdict, word in words.items() if counts[verdict])
    return f"{text.plural(len(found), 'check')}: {counted}"


def exit_code(found: Iterable[Examined]) -> ExitCode:
    blamed = {each.finding.cause for each in found if each.finding.verdict is Verdict.ERROR}
    return next((code for cause, code in _CODES.items() if cause in blamed), ExitCode.OK)


def document(found: Sequence[Examined], code: ExitCode) -> dict[str, object]:
    counts = Counter(each.finding.verdict for each in found)
    return {
        "exit_code": int(code),
        "counts": {verdict.value: counts[verdict] for verdict in Verdict},
        "checks": [
            {
                "part": each.part.name,
                "subject": each.part.subject,
                "name": each.name,
                "verdict": each.finding.verdict.value,
                "measured": each.finding.measured,
                "advice": list(each.finding.advice),
                "cause": each.finding.cause.value if each.finding.verdict is Verdict.ERROR else None,
                "figures": dict(each.finding.figures),
                "seconds": each.seconds,
            }
            for each in found
        ],
    }


class _Progress:
    """Shows a line for each check that takes longer than a second."""

    def __init__(self, options: GlobalOptions) -> None:
        self._live = is_terminal(sys.stderr, options.environment)
        self._line: SlowProgress | None = None
        self._what = ""

    def tick(self, what: str, _seconds: float) -> None:
        if self._line is None or self._what != what:
            self.clear()
            self._line, self._what = SlowProgress(sys.stderr, live=self._live), what
        self._line.show_unmeasured(what)

    def clear(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def _watched(examined: Iterator[Examined], slow: _Progress, options: GlobalOptions) -> Iterator[Examined]:
    """The findings. The progress line is erased before each. MLCBUILD_DEBUG prints tracebacks of broken checks."""
    try:
        for each in examined:
            slow.clear()
            if each.failure and options.environment.get(DEBUG_VARIABLE):
                print(each.failure, file=sys.stderr)
            yield each
    finally:
        slow.clear()
