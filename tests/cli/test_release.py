"""`mlcbuild release` and `mlcbuild verify`, from the cache of one build to a receiver without a workspace."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from tests.cli.conftest import at_eighty_columns
from tests.cli.kernel_workspace import enter_kernel_workspace

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]
HEAVY = ("tvm", "ray", "boto3", "botocore", "grpc", "numpy", "cyclonedx", "mlcbuild.workspace", "mlcbuild.engine")


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    openssl("genpkey", "-algorithm", "ed25519", "-out", str(folder / "release.key"))
    openssl("pkey", "-in", str(folder / "release.key"), "-pubout", "-out", str(folder / "release.pub"))
    return folder


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    """A built workspace that one stands in."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.delenv("MLCBUILD_RELEASE_KEY", raising=False)
    root = enter_kernel_workspace(tmp_path, monkeypatch)
    assert main(["build", "//:package"]) == 0
    capsys.readouterr()
    return root


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    """The exit code, what was printed, and what was said, without what differs from run to run."""
    capsys.readouterr()
    code = main(list(arguments))
    printed = capsys.readouterr()
    return code, _plain(printed.out), _plain(printed.err)


def _plain(text: str) -> str:
    kept = [line for line in text.splitlines(True) if not re.match(r"(writing|verifying): ", line)]
    text = re.sub(r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:KEY", "".join(kept))
    text = re.sub(r"[0-9.]+ k?B", "N B", text)
    return re.sub(r"(/[^ /\n]+)+/(release\b)", r"…/\2", text)


def released(capsys: Capture, to: Path, keys: Path, *more: str) -> None:
    code = main(
        ["release", "//:package", "--to", str(to), "--key", str(keys / "release.key"), "--version", "1.0", *more]
    )
    assert code == 0, capsys.readouterr().err


def test_a_release_is_verified_with_the_public_key_alone(
    workspace: Path, keys: Path, tmp_path: Path, snapshot: Snapshot, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "release"
    arguments = ("release", "//:package", "--to", str(to), "--key", str(keys / "release.key"), "--version", "1.0")
    dry = run(capsys, *arguments, "--dry-run")
    assert not to.exists()
    made = run(capsys, *arguments)
    again = run(capsys, *arguments)
    monkeypatch.chdir("/")
    shutil.rmtree(workspace)
    shutil.rmtree(tmp_path / "cache")
    verified = run(capsys, "verify", str(to), "--key", str(keys / "release.pub"))
    (to / "package/package.txt").write_text("something else")
    (to / "new").write_text("")
    (to / "sbom.cdx.json").unlink()
    spoilt = run(capsys, "verify", str(to), "--key", str(keys / "release.pub"))
    assert [code for code, *_ in (dry, made, again, verified, spoilt)] == [0, 0, 0, 0, ExitCode.NOT_VERIFIED]
    steps = {"release --dry-run": dry, "release": made, "release again": again, "verify": verified, "spoilt": spoilt}
    told = "".join(f"── {name}\n{out}{err}" for name, (_, out, err) in steps.items())
    snapshot("release", at_eighty_columns(told))


def test_errors_are_told_in_colour_where_that_is_wanted(
    workspace: Path, keys: Path, tmp_path: Path, snapshot: Snapshot, capsys: Capture
) -> None:
    released(capsys, tmp_path / "release", keys)
    (tmp_path / "release/package/package.txt").unlink()
    shown = run(capsys, "--color=always", "verify", str(tmp_path / "release"), "--key", str(keys / "release.pub"))
    snapshot("verify-colour", "".join(shown[1:]))


def test_nothing_runs_and_what_has_no_result_is_listed(
    workspace: Path, keys: Path, tmp_path: Path, snapshot: Snapshot, capsys: Capture
) -> None:
    (workspace / "model.txt").write_text("matmul decode,prefill first body\nadd decode another body\n")
    to = tmp_path / "release"
    code, out, err = run(capsys, "release", "//:package", "--to", str(to), "--key", str(keys / "release.key"))
    assert (code, out) == (ExitCode.WOULD_RUN, "")
    assert not to.exists()
    snapshot("release-not-cached", err)
    code, out, _ = run(
        capsys, "release", "//:package", "--to", str(to), "--key", str(keys / "release.key"), "-n", "--output=json"
    )
    assert code == ExitCode.WOULD_RUN
    assert [each["mnemonic"] for each in json.loads(out)["not_cached"]] == ["Partition"]
    released(capsys, to, keys, "--build")
    assert (to / "package/package.txt").is_file()


def test_files_that_no_cache_has_any_more_are_no_release(
    workspace: Path, keys: Path, tmp_path: Path, capsys: Capture
) -> None:
    placed = (workspace / "mlcbuild-out/default/package/package.txt").read_bytes()
    for blob in (tmp_path / "cache" / "mlcbuild").rglob("*"):
        if blob.is_file() and not blob.is_symlink() and blob.read_bytes() == placed:
            blob.unlink()
    code, _, err = run(capsys, "release", "//:package", "--to", str(tmp_path / "release"), "--unsigned")
    assert code == ExitCode.WOULD_RUN
    assert "//:package: 1 file of its results is in no cache any more" in err


def test_equal_inputs_make_equal_releases_on_other_machines(
    workspace: Path, keys: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    released(capsys, tmp_path / "first", keys)
    shutil.copytree(workspace, tmp_path / "elsewhere", ignore=shutil.ignore_patterns(".mlcbuild", "mlcbuild-out"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    released(capsys, tmp_path / "second", keys)
    for path in (path for path in (tmp_path / "first").rglob("*") if path.is_file()):
        assert path.read_bytes() == (tmp_path / "second" / path.relative_to(tmp_path / "first")).read_bytes()


def test_the_provenance_has_the_keys_of_the_build_and_the_commit(
    workspace: Path, keys: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.com")
    for command in (
        ("init", "-q"),
        ("add", "model.txt", "BUILD.toml", "pipeline"),
        ("commit", "-qm", "Begin"),
        ("remote", "add", "origin", "https://me:secret@example.com/w.git"),
    ):
        subprocess.run([*git, *command], check=True, capture_output=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    report = tmp_path / "report.json"
    assert main(["build", "//:package", "--build-report", str(report)]) == 0
    released(capsys, tmp_path / "release", keys, "--builder", "https://example.com/ci")
    bundle = json.loads((tmp_path / "release/provenance.sigstore.json").read_text())
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    predicate: Any = json.loads(payload)["predicate"]
    keys_there = {each["name"]: each["digest"]["blake3"] for each in predicate["runDetails"]["byproducts"]}
    assert keys_there == json.loads(report.read_text())["keys"]
    assert predicate["runDetails"]["builder"]["id"] == "https://example.com/ci"
    assert predicate["runDetails"]["metadata"] == {"finishedOn": "1970-01-02T00:00:00Z"}
    revision = predicate["buildDefinition"]["resolvedDependencies"][0]
    assert revision["digest"] == {"gitCommit": commit}
    assert (revision["uri"], revision["annotations"]) == ("git+https://example.com/w.git", {"changed": False})
    assert b"secret" not in payload


def test_the_key_may_be_in_a_variable(
    workspace: Path, keys: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, value in enumerate((str(keys / "release.key"), (keys / "release.key").read_text())):
        monkeypatch.setenv("MLCBUILD_RELEASE_KEY", value)
        to = str(tmp_path / f"release{number}")
        assert main(["release", "//:package", "--to", to]) == 0
        assert main(["verify", to, "--key", str(keys / "release.pub")]) == 0


def test_what_cannot_be_released_is_an_error_before_anything_is_written(
    workspace: Path, keys: Path, tmp_path: Path, snapshot: Snapshot, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("x")
    shutil.copy(keys / "release.key", workspace / "release.key")
    shutil.copy(keys / "release.pub", workspace / "release.pub")
    told = []
    for line in (
        "release //:package --to ../out",
        "release //:package --to ../out --key model.txt",
        "release //:package --to ../out --key release.pub",
        "release //:package --to ../out --key nowhere.key",
        "release //:package --to ../out --key release.key --unsigned",
        "release //:package --to ../out --unsigned --builder me",
        "release //:package --to http://example.com/x --unsigned",
        "release //:package --to s3://bucket --unsigned",
        "release //:package --to nowhere/out --unsigned",
        "release //:package --to ../full --unsigned",
        "release //:join --to ../out --unsigned",
        "verify ../nowhere --key release.pub",
        "verify ../full --key release.key",
        "verify ../full --key release.pub",
    ):
        code, out, err = run(capsys, *line.split())
        told.append(f"── {line} → {code}\n{out}{err}".replace(str(tmp_path), "…"))
    assert not (tmp_path / "out").exists()
    snapshot("release-errors", at_eighty_columns("".join(told)))


def test_verifying_loads_no_workspace_no_client_and_no_compiler(keys: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from mlcbuild.cli.main import main\n"
        f"main(['verify', {str(tmp_path)!r}, '--key', {str(keys / 'release.pub')!r}])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["release", "verify"])
def test_help(command: str, snapshot: Snapshot, capsys: Capture) -> None:
    assert main([command, "--help"]) == 0
    snapshot(f"help-{command}", capsys.readouterr().out)
