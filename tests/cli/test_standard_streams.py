"""Closed, full and abandoned standard streams: a command does its work, and its exit code is that of the work."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

BUILD_FILE = """\
[workspace]
name = "example"

[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "a"
tool = ":sh"
inputs = ["in"]
outputs = ["out"]
arguments = ["-c", "cp $0 $1", "{inputs}", "{outputs}"]
environment = { PATH = "/usr/bin:/bin" }

[[command]]
name = "broken"
tool = ":sh"
outputs = ["out"]
arguments = ["-c", "echo no; exit 3"]
tags = ["manual"]

[[command]]
name = "program"
tool = ":sh"
outputs = ["program"]
environment = { PATH = "/usr/bin:/bin" }
arguments = ["-c", "(echo '#!/bin/sh'; echo 'while :; do echo y; done') > $0; chmod +x $0", "{outputs}"]
tags = ["manual"]
"""
FULL = "error: standard output: No space left on device\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    root.mkdir()
    (root / "BUILD.toml").write_text(BUILD_FILE)
    (root / "in").write_text("content\n")
    return root


def shell(root: Path, line: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of Bash in which `mlcbuild` is the command."""
    function = f'mlcbuild() {{ "{sys.executable}" -m mlcbuild.cli.main "$@"; }}\n'
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(root.parent / "cache"),
        "XDG_CONFIG_HOME": str(root.parent / "config"),
        **variables,
    }
    environment.pop("MLCBUILD_DEBUG", None)
    return subprocess.run(
        ["bash", "-c", function + line], cwd=root, env=environment, capture_output=True, check=False, timeout=120
    )


def built(root: Path) -> str | None:
    path = root / "mlcbuild-out/default/a/out"
    return path.read_text() if path.exists() else None


@pytest.mark.parametrize(
    "redirection",
    [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full", ">&- 2>/dev/full", "2</dev/null", "2>&1 | true"],
)
def test_a_build_is_made_whatever_its_streams_are(workspace: Path, redirection: str) -> None:
    done = shell(workspace, f"mlcbuild build //:a {redirection}; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, built(workspace)) == (0, "content\n")
    assert b"Traceback" not in done.stderr
    again = shell(workspace, f"mlcbuild build //:a {redirection}; exit ${{PIPESTATUS[0]}}")
    assert again.returncode == 0
    assert (workspace / "in").read_text() == "content\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("build //:broken", 1),
        ("build //:a //:broken --keep-going", 1),
        ("build //:nothing", 7),
        ("build //:a --jobs x", 2),
        ("query 'deps('", 2),
    ],
)
@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", ">&- 2>&-", "2>&1 | true", ">/dev/full 2>&1"])
def test_the_exit_code_is_that_of_the_work(workspace: Path, command: str, code: int, redirection: str) -> None:
    done = shell(workspace, f"mlcbuild {command} {redirection}; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == code
    assert done.stderr == b""


@pytest.mark.parametrize("command", ["build //:a", "query //...", "info", "--help", "--version", "build --help", "log"])
def test_results_that_cannot_be_written_are_an_error_of_the_machine(workspace: Path, command: str) -> None:
    shell(workspace, "mlcbuild build //:a")
    done = shell(workspace, f"mlcbuild {command} > /dev/full")
    assert done.returncode == 36
    assert FULL in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    assert built(workspace) == "content\n"


@pytest.mark.parametrize("option", ["--events", "--profile", "--build-report"])
@pytest.mark.parametrize(("file", "reason"), [("/dev/full", "No space left on device"), ("/dev/stdout", "Broken pipe")])
def test_a_report_that_cannot_be_written_is_an_error_after_the_build(
    workspace: Path, option: str, file: str, reason: str
) -> None:
    done = shell(workspace, f"mlcbuild build //:a {option} {file} | true; exit ${{PIPESTATUS[0]}}")
    assert built(workspace) == "content\n"
    told = done.stderr.decode()
    if file == "/dev/full" or done.returncode:  # a reader may leave before or after the report is written
        assert done.returncode == 36
        assert f"error: a report cannot be written: {file}: {reason}\n" in told
    assert "Traceback" not in told
    assert "Errno" not in told


@pytest.mark.parametrize("command", ["build //:a", "query //...", "info --output json", "--help", "build --help"])
@pytest.mark.parametrize("redirection", ["| true", ">&-"])
def test_results_without_a_reader_are_no_error(workspace: Path, command: str, redirection: str) -> None:
    done = shell(workspace, f"mlcbuild {command} {redirection}; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def test_output_that_may_not_block_is_written_whole(workspace: Path) -> None:
    # A shell or a terminal multiplexer may leave its terminal non-blocking for the commands that it starts.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen(
        [sys.executable, "-m", "mlcbuild.cli.main", "info", "--output", "json"], cwd=workspace, stdout=writing
    )
    try:
        os.close(writing)
        time.sleep(1.5)  # the pipe must not be read before it is full
        with os.fdopen(reading, "rb") as stream:
            text = stream.read()
    finally:
        code = process.wait(timeout=60)
    assert code == 0
    assert json.loads(text)["workspace"] == "example"


def test_a_program_that_is_run_ends_when_its_reader_leaves(workspace: Path) -> None:
    done = shell(workspace, "mlcbuild run //:program | head -1; echo ${PIPESTATUS[0]}")
    assert done.stdout.splitlines() == [b"y", b"141"]


NAME = b"p\xff"


def test_a_name_that_is_not_utf_8_is_shown_by_its_bytes(workspace: Path) -> None:
    folder = workspace / os.fsdecode(NAME)
    folder.mkdir()
    (folder / "BUILD.toml").write_text('[[filegroup]]\nname = "x"\nsrcs = ["y"]\n')
    told = shell(
        workspace, "mlcbuild query //...; mlcbuild -C $'n\\xff' info; mlcbuild build $'//:\\xff'; mlcbuild $'\\xff'"
    )
    assert "udcff" not in told.stderr.decode()
    assert told.stderr.decode().splitlines() == [
        r'p\xff/BUILD.toml:2:8: bad target name "x": package "p\xff" contains "\xff", which is not allowed there',
        r'p\xff/BUILD.toml:3:9: bad label "y" for "srcs" in //p\xff:x: package "p\xff" contains "\xff", '
        "which is not allowed there",
        "2 errors",
        rf"error: {workspace}/n\xff is not a directory",
        "  check the argument of --workspace",
        r'error: bad target pattern "//:\xff": target name "\xff" contains "\xff", which is not allowed there',
        r'error: no such command "\xff"',
        "  see mlcbuild --help",
    ]


def test_a_workspace_below_a_name_that_is_not_utf_8_is_built_and_reported(workspace: Path) -> None:
    root = workspace.rename(workspace.with_name(os.fsdecode(NAME)))
    flags = "--profile $'p\\xff.json' --build-report $'r\\xff.json' --events $'e\\xff.json'"
    done = shell(root, f"mlcbuild build //:broken {flags}")
    assert (done.returncode, done.stdout) == (1, b"")
    assert "mlcbuild itself failed" not in done.stderr.decode()
    last = (root / os.fsdecode(b"e\xff.json")).read_text().splitlines()[-1]
    assert json.loads(last)["exit_code"] == 1
    assert json.loads((root / os.fsdecode(b"r\xff.json")).read_text())["exit_code"] == 1
    assert json.loads((root / os.fsdecode(b"p\xff.json")).read_text())
    log = shell(root, "mlcbuild log --output json")
    assert os.fsencode(json.loads(log.stdout)[0]["arguments"][-1]) == b"e\xff.json"
    # For programs, a name in text is its bytes, and in JSON what Python makes those bytes of.
    assert bytes(os.fsencode(root)) in shell(root, "mlcbuild info").stdout
    paths = json.loads(shell(root, "mlcbuild info --output json").stdout)["paths"]
    assert paths["workspace"] == str(root)


def test_a_bug_with_such_a_name_has_a_traceback(workspace: Path) -> None:
    from mlcbuild.cli.output.errors import exception_lines
    from mlcbuild.cli.output.terminal import Style

    bug = ValueError("about p\udcff")
    exception_lines(bug, style=Style(), environment={}, state_directory=workspace)
    (written,) = workspace.glob("crash-*")
    assert r"about p\udcff" in written.read_text()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_in_every_encoding(workspace: Path, encoding: str) -> None:
    done = shell(workspace, "mlcbuild info --output json", PYTHONIOENCODING=encoding)
    rules = {rule["name"]: rule for rule in json.loads(done.stdout.decode())["rules"]}
    documented = [attribute["doc"] for attribute in rules["platform"]["attributes"]]
    assert any("…" in text for text in documented)


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("ascii", "6144x4096 .xn (ed710c27) ~"),
        ("latin-1", "6144×4096 ·×n (ed710c27) ~"),
        ("utf-8", "6144×4096 ·×n (ed710c27) …"),
    ],
)
def test_signs_that_a_terminal_lacks_are_replaced_by_plain_ones(workspace: Path, encoding: str, name: str) -> None:
    code = (
        "import sys; from mlcbuild.cli.output.standard_streams import open_standard_streams; open_standard_streams();"
        r"print('6144\u00d74096 \u00b7\u00d7n (ed710c27) \u2026', file=sys.stderr)"
    )
    done = shell(workspace, f'"{sys.executable}" -c "{code}"', PYTHONIOENCODING=encoding)
    assert done.stderr.decode(encoding).strip() == name
