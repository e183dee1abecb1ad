"""The files for CI systems are valid, and `init --ci` writes them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from tests.cli.ci_files.runners import read_yaml

PROJECT = Path(__file__).parents[3]
FILES = PROJECT / "examples/ci"
WORKFLOWS = sorted((FILES / "github").glob("*.yml"))
PIPELINES = sorted((FILES / "gitlab").glob("*.yml"))
PROGRAMS = Path(sys.executable).parent
Capture = pytest.CaptureFixture[str]


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflows_and_pipelines_fit_their_schemas() -> None:
    assert len(WORKFLOWS) == 3
    assert len(PIPELINES) == 2
    check = str(PROGRAMS / "check-jsonschema")
    run(check, "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS))
    run(check, "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", *map(str, PIPELINES))


def test_actionlint_finds_nothing_in_the_workflows() -> None:
    program = PROGRAMS / "actionlint"
    if not program.exists():
        pytest.skip("no actionlint: install locks/development.txt")
    run(str(program), "-shellcheck", str(PROGRAMS / "shellcheck"), *map(str, WORKFLOWS))


def test_policies_grant_only_what_builds_need() -> None:
    def actions(name: str) -> dict[str, list[str]]:
        policy = json.loads((FILES / "aws" / f"{name}-policy.json").read_text())
        assert policy["Version"] == "2012-10-17"
        return {each["Resource"][0]: each["Action"] for each in policy["Statement"]}

    objects, bucket = "arn:aws:s3:::BUCKET/mlcbuild/*", "arn:aws:s3:::BUCKET"
    assert actions("reader") == {objects: ["s3:GetObject"], bucket: ["s3:ListBucket"]}
    writes = ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"]
    assert actions("writer") == {objects: writes, bucket: ["s3:ListBucket"]}


@pytest.mark.parametrize("system", ["github", "gitlab"])
def test_only_main_may_take_the_role_that_writes(system: str) -> None:
    def conditions(role: str) -> dict[str, dict[str, str]]:
        (statement,) = json.loads((FILES / "aws" / f"{system}-{role}-trust.json").read_text())["Statement"]
        assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
        found: dict[str, dict[str, str]] = statement["Condition"]
        return found

    (subject,) = (value for name, value in conditions("writer")["StringEquals"].items() if name.endswith(":sub"))
    assert re.search(r"[/:]main$", subject)
    (pattern,) = conditions("reader")["StringLike"].values()
    assert subject.startswith(pattern.removesuffix("*"))


def test_no_step_has_an_expression_of_somebody_elses_in_its_script() -> None:
    for path in WORKFLOWS:
        for job in read_yaml(path)["jobs"].values():
            for step in job["steps"]:
                assert "${{" not in step.get("run", ""), path.name


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "first"
    root.mkdir()
    monkeypatch.chdir(root)
    return root


def test_init_writes_the_files_of_a_ci_system(root: Path, capsys: Capture) -> None:
    (root / "BUILD.toml").write_text('[workspace]\nname = "x"\n')
    assert main(["init", "--ci", "github"]) == 0
    out, err = capsys.readouterr()
    written = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert {str(Path(line).relative_to(root)) for line in out.splitlines()} == written - {"BUILD.toml"}
    assert {path.name for path in WORKFLOWS} == {path.name for path in (root / ".github/workflows").iterdir()}
    for path in WORKFLOWS:
        assert (root / ".github/workflows" / path.name).read_bytes() == path.read_bytes()
    assert err.startswith("next: name the wheel in requirements-mlcbuild.txt")
    assert (root / "BUILD.toml").read_text() == '[workspace]\nname = "x"\n'

    assert main(["init", "--ci", "gitlab"]) == 0
    assert (root / ".gitlab-ci.yml").read_bytes() == (FILES / "gitlab/gitlab-ci.yml").read_bytes()
    included = read_yaml(root / ".gitlab-ci.yml")["include"]
    assert all((root / each["local"]).is_file() for each in included)


def test_init_with_ci_changes_no_file_and_writes_none_if_one_is_there(root: Path, capsys: Capture) -> None:
    (root / ".gitlab-ci.yml").write_text("mine: {script: x}\n")
    assert main(["init", "--ci", "gitlab"]) == ExitCode.COMMAND_LINE
    assert capsys.readouterr().err.startswith("error: .gitlab-ci.yml is there already\n")
    assert [path.name for path in root.iterdir()] == [".gitlab-ci.yml"]
    (root / "requirements-mlcbuild.txt").write_text("mine\n")
    assert main(["init", "--ci", "github"]) == 0
    assert (root / "requirements-mlcbuild.txt").read_text() == "mine\n"
    assert (root / "BUILD.toml").exists()
