"""Every command has its output in snapshots: its help, and results or errors, plain and coloured, at 80 columns."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from mlcbuild.cli.main import application, main
from mlcbuild.cli.output.text import COLUMNS, cell_width
from tests.cli.conftest import without_times
from tests.cli.kernel_workspace import enter_kernel_workspace

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]
SNAPSHOTS = Path(__file__).parent / "snapshots"

# What a command prints in a workspace whose model was built and then edited.
PRINTED: dict[str, tuple[str, ...]] = {
    "affected": ("affected", "--since", "HEAD", "--output", "text"),
    "aquery": ("aquery", "mnemonic('^Partition$', //:model)"),
    "build": ("build", "//:package", "--dry-run"),
    "cache-gc": ("cache", "gc", "--max-size", "much"),
    "cache-pull": ("cache", "pull", "//:package"),
    "cache-push": ("cache", "push", "//:package"),
    "cache-rm": ("cache", "rm", "zz"),
    "cache-stats": ("cache", "stats", "extra"),
    "cache-verify": ("cache", "verify", "extra"),
    "clean": ("clean", "extra"),
    "diff": ("diff", "//:model", "//:nothing"),
    "doctor": ("doctor", "nothing"),
    "explain": ("explain", "//:package"),
    "fetch": ("fetch", "//:model"),
    "help": ("help", "nothing-of-the-kind"),
    "import": ("import", "no-such-file.json"),
    "info": ("info", "--legal"),
    "init": ("init",),
    "log": ("log", "nothing"),
    "log-critical-path": ("log", "critical-path", "--build", "17"),
    "log-what-ran": ("log", "what-ran", "--build", "17"),
    "matrix": ("matrix", "//..."),
    "query": ("query", "deps(//:package)", "--output", "tree"),
    "release": ("release", "//:package"),
    "report": ("report", "17"),
    "run": ("run", "//:model"),
    "show": ("show", "//:nothing"),
    "shutdown": ("shutdown",),
    "verify": ("verify", "nowhere"),
    "version": ("version", "extra"),
}

# Snapshots with longer lines than 80 columns, and what is in these lines.
FOR_PROGRAMS = "a format that programs read"
FILE = "a file that a command writes"
NAMES = "names, paths and digests, which are not broken"
MESSAGE = "a message, which an editor or a search finds as one line"
WIDE: dict[str, str] = {
    "log-history-wide": "how a wider terminal is used",
    **dict.fromkeys(
        [
            "annotations",
            "build-report",
            "ci-reports-of-errors",
            "events",
            "job-summary",
            "junit",
            "profile",
            "profile-nodes",
        ],
        FOR_PROGRAMS,
    ),
    **dict.fromkeys(
        ["import-delivery", "import-lib-delivery", "import-package-config", "init-empty", "init-gguf", "init-hf"],
        FILE,
    ),
    **dict.fromkeys(
        [
            "build-failure-shared",
            "cache-pull-incomplete",
            "cache-verify",
            "console-table",
            "console-table-long",
            "doctor-healthy",
            "dry-run-code",
            "help-topic",
            "help-topic-colour",
            "log-builds",
            "log-critical-path",
            "log-what-ran",
            "log-what-ran-slowest",
            "release",
            "show-kernel",
            "show-kernel-color",
            "show-link",
            "show-link-color",
            "show-partition",
            "show-partition-color",
            "show-tool",
            "show-tool-color",
        ],
        NAMES,
    ),
    **dict.fromkeys(
        [
            "build-network-cache",
            "cache-pull-silence",
            "cache-push-incomplete",
            "cache-push-silence",
            "cache-settings-errors",
            "cache-unreadable",
            "columns-doctor",
            "columns-doctor-colour",
            "doctor-errors",
            "doctor-ray",
            "release-errors",
            "remote-unsigned",
            "usage-build---x----y",
            "usage-cache-transfer-a-reader",
            "usage-cache-transfer-both",
            "usage-cache-transfer-nothing",
            "usage-diff-alone",
            "usage-diff-nothing",
            "usage-diff-three",
            "usage-query---output-yaml---x",
            "usage-query-kind-model",
            "workspace-errors",
            "workspace-errors-colour",
        ],
        MESSAGE,
    ),
}


def commands() -> Iterator[str]:
    """The name of each command, and of each command of a group: `cache-gc`."""
    for name, command in vars(get_command(application()))["commands"].items():
        inner: dict[str, Any] = vars(command).get("commands", {})
        yield from (f"{name}-{each}" for each in inner)
        if not inner or vars(command).get("invoke_without_command"):
            yield name


def test_every_command_has_snapshots_of_its_help_and_its_output() -> None:
    lacking = []
    for name in sorted(set(commands())):
        wanted = [f"help-{name}", f"columns-{name}", f"columns-{name}-colour"]
        lacking += [f"{name} has no snapshot {each}" for each in wanted if not (SNAPSHOTS / f"{each}.txt").exists()]
        if name not in PRINTED:
            lacking.append(f"{name} has no row in PRINTED")
    assert not lacking, "\n".join(lacking)


@pytest.mark.parametrize("name", PRINTED)
def test_help(name: str, snapshot: Snapshot, capsys: Capture) -> None:
    group, _, inner = name.partition("-")
    for colour in ("always", "never"):
        assert main(["--color", colour, group, *filter(None, [inner]), "--help"]) == 0
        snapshot(f"help-{name}", capsys.readouterr().out)


def test_no_line_is_wider_than_80_columns() -> None:
    found: dict[str, int] = {}
    for path in sorted(SNAPSHOTS.glob("*.txt")):
        shown = re.sub(r"␛\[[0-9;]*[A-Za-z]", "", path.read_text(encoding="utf-8"))
        widest = max(map(cell_width, shown.splitlines()), default=0)
        if widest > COLUMNS:
            found[path.stem] = widest
    assert {name: width for name, width in found.items() if name not in WIDE} == {}
    assert [name for name in WIDE if name not in found] == [], "these fit now, and need no exception"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("snapshots")
    with pytest.MonkeyPatch.context() as patch:
        root = enter_kernel_workspace(folder, patch)
        (root / ".gitignore").write_text("mlcbuild-out/\n.mlcbuild/\n__pycache__/\n")
        for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@example.org commit -qm one"):
            subprocess.run(["git", *command.split()], cwd=root, check=True)
        assert main(["build", "//:package", "--quiet"]) == 0
        (root / "model.txt").write_text((root / "model.txt").read_text().replace("second", "other"))
        yield root


@pytest.mark.parametrize("name", PRINTED)
def test_output_at_80_columns(
    name: str, workspace: Path, snapshot: Snapshot, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace.parent / "cache"))
    shown = []
    for colour in ("never", "always"):
        capsys.readouterr()
        main(["--color", colour, *PRINTED[name]])
        out, err = capsys.readouterr()
        shown.append(_stable(out + err, workspace.parent))
    snapshot(f"columns-{name}", shown[0])
    snapshot(f"columns-{name}-colour", shown[1])
    assert re.sub("\x1b\\[[0-9;]*m", "", shown[1]) == shown[0]


def _stable(text: str, folder: Path) -> str:
    text = without_times(text).replace(str(folder), "<tmp>")
    return re.sub(r"\b[0-9a-f]{16}(?:[0-9a-f]{48})?\b", "DIGEST", text)
