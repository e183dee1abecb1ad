"""Every command has its output in snapshots: its help, and results or errors, plain and coloured, at 80 columns."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from mlcbuild.cache import file_systems
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import application, main
from mlcbuild.cli.output import slow_progress
from mlcbuild.cli.output.text import COLUMNS, cell_width
from mlcbuild.tuning.record import Outcome
from tests.cli.checks_workspace import add_checks
from tests.cli.conftest import long_folder
from tests.cli.kernel_workspace import enter_kernel_workspace
from tests.durations import without_times
from tests.remote import http_server
from tests.tuning.recorded import record

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("cold_workers")
SNAPSHOTS = Path(__file__).parent / "snapshots"

# What a command prints in a copy of a workspace that was built twice, and then edited.
PRINTED: dict[str, tuple[str, ...]] = {
    "affected": ("affected", "--since", "HEAD", "--output", "text"),
    "aquery": ("aquery", "mnemonic('^Partition$', //:model)"),
    "bench": ("bench", "//:notes"),
    "build": ("build", "//:package", "//:notes", "--dry-run"),
    "cache-gc": ("cache", "gc", "--max-size", "0"),
    "cache-pull": ("cache", "pull", "//:notes", "--remote", "{server}", "--disk-cache", "{empty}"),
    "cache-push": ("cache", "push", "//:notes", "--remote", "{server}"),
    "cache-rm": ("cache", "rm", "//:notes"),
    "cache-stats": ("cache", "stats", "--max-age", "30d"),
    "cache-verify": ("cache", "verify"),
    "clean": ("clean",),
    "compare": ("compare", "//:notes"),
    "diff": ("diff", "//:package", "--build", "1"),
    "doctor": ("doctor", "workspace"),
    "explain": ("explain", "//:package"),
    "fetch": ("fetch", "//:fetched"),
    "help": ("help", "labels"),
    "import": ("--workspace", "{empty}", "import", "{empty}/spec.json"),
    "info": ("info", "--legal"),
    "init": ("--workspace", "{empty}", "init"),
    "log": ("log",),
    "log-critical-path": ("log", "critical-path"),
    "log-what-ran": ("log", "what-ran"),
    "matrix": ("matrix", "//..."),
    "query": ("query", "deps(//:package)", "--output", "tree"),
    "release": ("release", "//:notes", "--to", "{place}/release", "--key", "{key}", "--version", "1.0"),
    "report": ("report",),
    "run": ("run", "//:greeting"),
    "show": ("show", "//:model", "CompileKernel", "matmul", "--build", "2"),
    "shutdown": ("shutdown",),
    "tune-candidates": ("tune", "candidates", "//:notes", "--to", "{empty}/candidates"),
    "tune-export": ("tune", "export", "-"),
    "tune-import": ("tune", "import", "{empty}/records.jsonl"),
    "tune-kernels": ("tune", "//:notes"),
    "tune-measure": ("tune", "measure", "{empty}"),
    "tune-stats": ("tune", "stats"),
    "verify": ("verify", "{place}/release", "--key", "{key}.pub"),
    "test": ("test", "//checks:all"),
    "version": ("version",),
}
# What is done in the copy before.
PREPARED: dict[str, tuple[str, ...]] = {
    "cache-pull": PRINTED["cache-push"],
    "tune-export": PRINTED["tune-import"],
    "tune-stats": PRINTED["tune-import"],
    "verify": PRINTED["release"],
}
EXPECTED = {
    "build": ExitCode.WOULD_RUN,
    "test": ExitCode.TESTS_FAILED,
    **dict.fromkeys(("bench", "compare", "tune-candidates", "tune-kernels", "tune-measure"), ExitCode.COMMAND_LINE),
}
RECORDS = (record(), record(outcome=Outcome.CRASHED, shape=(("chains", 4),), message="it was killed by SIGSEGV"))
# The width of their columns differs from run to run.
MEASURED = ("cache-stats", "log", "show", "diff", "info")
MORE_TARGETS = """
[[command]]
name = "notes"
tool = ":join"
inputs = ["notes.md"]
arguments = ["{{inputs}}", "{{outputs}}"]
outputs = ["notes.txt"]

[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "greeting"
tool = ":sh"
arguments = ["-c", "printf '#!/bin/sh\\necho good morning\\n' > $0; chmod +x $0", "{{outputs}}"]
outputs = ["greeting"]

[[local_file]]
name = "fetched"
path = "{tool}"
sha256 = "{digest}"
"""
SPEC = """{
  "default_quantization": ["q4f16_1"],
  "default_compile_options": [{"device": "cuda"}],
  "tasks": [{"model_id": "Tiny", "model": "HF://a/tiny"}]
}"""

# Snapshots that may have longer lines than 80 columns.
FOR_PROGRAMS = frozenset(
    {
        "annotations",
        "build-report",
        "ci-reports-of-errors",
        "events",
        "job-summary",
        "junit",
        "profile",
        "profile-nodes",
        "columns-tune-export",
        "columns-tune-export-colour",
    }
)
WRITTEN_FILES = frozenset({"import-delivery", "import-lib-delivery", "import-package-config", "init-gguf", "init-hf"})
WIDER_TERMINAL = frozenset({"log-history-wide"})
CODE_OF_A_PAGE = frozenset({"help-topic", "help-topic-colour"})  # which people copy
WIDE = FOR_PROGRAMS | WRITTEN_FILES | WIDER_TERMINAL | CODE_OF_A_PAGE


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
    """But for a path, a digest or a label, which stands alone in its line then, and for a matrix in TOML."""
    wide: dict[str, list[str]] = {}
    for path in sorted(SNAPSHOTS.glob("*.txt")):
        shown = re.sub(r"␛\[[0-9;]*[A-Za-z]", "", path.read_text(encoding="utf-8"))
        found = [line for line in shown.splitlines() if cell_width(line) > COLUMNS]
        if path.stem in WRITTEN_FILES:
            found = [line for line in found if not line.removeprefix("# ").startswith("matrix = ")]
            assert not found, f"{path.stem}: {found}"
        elif path.stem not in WIDE:
            wide[path.stem] = [line for line in found if len(line.split()) > 1]
        else:
            assert found, f"{path.stem} fits now, and needs no exception"
    assert {name: lines for name, lines in wide.items() if lines} == {}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a workspace, its disk cache and a key. Its path is long, so that lines break at the same words
    wherever it lies."""
    folder = long_folder(tmp_path_factory.mktemp("built"))
    with pytest.MonkeyPatch.context() as patch:
        root = enter_kernel_workspace(folder, patch)
        add_checks(root)
        tool = folder / "join.sh"
        more = MORE_TARGETS.format(tool=tool, digest=hashlib.sha256(tool.read_bytes()).hexdigest())
        (root / "BUILD.toml").write_text((root / "BUILD.toml").read_text() + more)
        (root / "notes.md").write_text("what is new\n")
        (root / ".gitignore").write_text("mlcbuild-out/\n.mlcbuild/\n__pycache__/\n")
        for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@example.org commit -qm one"):
            subprocess.run(["git", *command.split()], cwd=root, check=True)
        for program in ("genpkey -algorithm ed25519 -out key", "pkey -in key -pubout -out key.pub"):
            subprocess.run(["openssl", *program.split()], cwd=folder, check=True, capture_output=True)
        model = root / "model.txt"
        assert main(["build", "//:package", "//:notes", "//:greeting", "--quiet", "--jobs", "2"]) == 0
        model.write_text(model.read_text().replace("first", "another"))
        assert main(["build", "//:package", "--quiet", "--jobs", "2"]) == 0
        model.write_text(model.read_text().replace("second", "other"))
    return folder


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.usefixtures("eighty_columns")
def test_output_at_80_columns(
    name: str,
    built: Path,
    tmp_path: Path,
    server: http_server.Cache,
    snapshot: Snapshot,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLCBUILD_REMOTE_ROLE", "read-write")
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setattr(slow_progress, "_QUIET_SECONDS", 60.0)
    (tmp_path / "mounts").write_text("rootfs / ext4 rw 0 0\n")
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "mounts")
    shown = []
    for colour in ("never", "always"):
        server.blobs.clear()
        (tmp_path / colour).mkdir()
        place = long_folder(tmp_path / colour)
        shutil.copytree(built, place, symlinks=True, dirs_exist_ok=True)
        empty = place / "empty"
        empty.mkdir()
        (empty / "spec.json").write_text(SPEC)
        (empty / "records.jsonl").write_text("".join(one.line() for one in RECORDS))
        monkeypatch.chdir(place / "workspace")
        monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        names = {"server": server.address, "place": str(place), "empty": str(empty), "key": str(place / "key")}
        if name in PREPARED:
            assert main([each.format(**names) for each in PREPARED[name]]) == 0
        capfd.readouterr()
        command = ["--color", colour, *(each.format(**names) for each in PRINTED[name])]
        # `run` becomes the program that it starts.
        is_replaced = name == "run"
        code = subprocess.call([sys.executable, "-m", "mlcbuild.cli.main", *command]) if is_replaced else main(command)
        assert code in (0, int(EXPECTED.get(name, ExitCode.OK)))
        out, err = capfd.readouterr()
        shown.append(_stable(name, out + err, place, built, server.address))
    snapshot(f"columns-{name}", shown[0])
    snapshot(f"columns-{name}-colour", shown[1])
    without_colour = re.sub("\x1b\\[[0-9;]*m", "", shown[1])
    assert [line.rstrip() for line in without_colour.splitlines()] == shown[0].splitlines()


def _stable(name: str, text: str, place: Path, built: Path, server: str) -> str:
    """Without what differs from run to run and from machine to machine."""
    text = without_times(text).replace(str(place), "<tmp>").replace(str(built), "<tmp>").replace(server, "<server>")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,?  ?)[0-9a-f]{8}", r"2026-11-29 12:00:00\1c0ffee00", text)
    text = re.sub(r"\b[0-9a-f]{16}(?:[0-9a-f]{48})?\b|\b[0-9a-f]{12}\b|SHA256:[A-Za-z0-9+/]{43}", "DIGEST", text)
    text = re.sub(r"\d[\d,.]* ?([kMGT]?B|ms|%)(?!\w)", "N", text)
    text = re.sub(r"(?<= in )\d+\.\ds(?!\w)", "0.0s", text)
    text = re.sub(r"(?<![\d.])\d+\.\d\d(?![\d.])", "0.00", text)
    text = re.sub(r"\d+(?:\.\d+){2,}\S*", "1.2.3", text)
    text = re.sub(r"\d+( blobs| +N\n)", r"N\1", text)
    text = re.sub(r"(?<=  slack)( +)none: on the critical path", r"\g<1>0.00 s", text)
    text = re.sub(r"(?<=\S)  +", "  ", text) if name.startswith(MEASURED) else text
    if name == "info":  # There are ever more families.
        text = "".join(line for line in text.splitlines(keepends=True) if line.startswith(("FAMILY", "llama ")))
    return text
