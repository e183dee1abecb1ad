"""The seconds of `mlcbuild report` for a build of ten thousand actions, and of opening the page in Chromium.

    python -m benchmarks.report_page [--actions N] [--rounds N] [--events FILE]

Method. A workspace of as many `command` targets as actions is built once with the disk cache in a temporary folder
(benchmarks/command_targets.py), so every action has a record, a key and outputs; with `--events`, the build of that
event log is taken instead. `mlcbuild report` is a process of its own, started as a user starts it. The page is then
opened from the disk, each round in a fresh Chromium without a window. The median and the extremes of the rounds are
printed: of the command by the clock and by the processor; of the page, from the navigation to the end of its load, by
when all scripts have run and the overview stands there, and to its first paint; and from there to the list of actions,
to what a search finds in it, to the timeline, and to the details of an action.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.command_targets import write_workspace
from tests.cli.browser import Browser, chromium

_PROGRAM = str(Path(sys.executable).parent / "mlcbuild")
_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"
_PAINTED = "(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0) / 1000"
# Each step is timed by the page's own clock, with the layout that it leads to.
_STEPS = {
    "list of actions": "page.go({view: 'actions'})",
    "search": "page.go({view: 'actions', query: page.build.actions.at(-1).name.slice(0, 4)})",
    "timeline": "page.go({view: 'timeline', query: ''})",
    "details of the first action opened": "page.go({action: page.build.actions[0].identifier})",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        page, workspace = Path(folder, "page.html"), Path(folder, "workspace")
        command = [_PROGRAM, "report", "--to", str(page)]
        if arguments.events:
            workspace.mkdir()
            command += ["--events", str(arguments.events.absolute())]
        else:
            write_workspace(workspace, arguments.actions)
            subprocess.run([_PROGRAM, "build", "//..."], cwd=workspace, check=True, capture_output=True)
        made = [_seconds(command, workspace) for _ in range(arguments.rounds)]
        for name, values in zip(("clock", "processor"), zip(*made, strict=True), strict=True):
            _print(f"mlcbuild report, {name}", values)
        print(f"{'size of the page':38} {page.stat().st_size / 1e6:6.1f} MB")
        rounds = [_opened(page, Path(folder, f"profile-{index}")) for index in range(arguments.rounds)]
        for name in rounds[0]:
            _print(name, [each[name] for each in rounds])


def _seconds(command: list[str], workspace: Path) -> tuple[float, float]:
    """Of the clock and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=workspace, check=True, capture_output=True)
    ended, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended - began, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _opened(page: Path, profile: Path) -> dict[str, float]:
    with chromium(profile) as driver:
        browser = Browser(driver)
        browser.open(page)
        found = {"page opens: loaded": browser.run(_LOADED), "page opens: painted": browser.run(_PAINTED)}
        for name, step in _STEPS.items():
            script = f"(() => {{ const began = performance.now(); {step}; document.body.offsetHeight; "
            found[name] = browser.run(f"{script} return performance.now() - began; }})()") / 1000
        return found


def _print(name: str, values: tuple[float, ...] | list[float]) -> None:
    ordered = sorted(values)
    print(f"{name:38} {statistics.median(ordered):6.2f} s ({ordered[0]:.2f} to {ordered[-1]:.2f})")


if __name__ == "__main__":
    main()
