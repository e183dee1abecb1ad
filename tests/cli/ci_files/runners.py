"""Run the commands of our workflows of GitHub and pipelines of GitLab, as their runners would, with real commands.

A job gets a clone of the repository and an empty home. Steps of GitHub that use an action are not run, except that
`aws-actions/configure-aws-credentials` gives the credentials of the user whose name the role is. mlcbuild is that of
this environment: `pip` looks only whether it is asked to install what the repository requires.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.cli.ci_files.expressions import evaluate, interpolated, shown

_PIP = """\
#!/bin/sh
[ "$*" = "install -r requirements-mlcbuild.txt" ] && [ -s requirements-mlcbuild.txt ]
"""
_LEFT_OUT = re.compile(r"PYTHON|VIRTUAL_ENV|MLCBUILD|XDG_|AWS_|GITHUB_|CI_|GITLAB")
_CREDENTIALS = "aws-actions/configure-aws-credentials"


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A job that has run: the folder of its checkout, its exit code, what it printed, and its summary."""

    name: str
    folder: Path
    code: int
    printed: str
    summary: str = ""


@dataclass(kw_only=True)
class World:
    """A repository, and what jobs need besides it: the users of a bucket by role, and variables of the repository."""

    repository: Path
    folder: Path
    endpoint: str  # of the server that stands for AWS
    users: Mapping[str, tuple[str, str]]  # an access key and a secret key
    variables: Mapping[str, str]
    secrets: Mapping[str, str]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def checkout(self, revision: str) -> tuple[Path, dict[str, str]]:
        """A clone at a revision, and the environment of a job in it."""
        home = self.folder / f"job-{next(self.numbers)}"
        folder = home / "checkout"
        home.mkdir(parents=True)
        git(self.folder, "clone", "--quiet", str(self.repository), str(folder))
        git(folder, "checkout", "--quiet", revision)
        programs = home / "programs"
        programs.mkdir()
        (programs / "pip").write_text(_PIP)
        (programs / "pip").chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not _LEFT_OUT.match(name)}
        return folder, {
            **environment,
            "HOME": str(home),
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CI": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def credentials(self, role: str) -> dict[str, str]:
        access, secret = self.users[role]
        return {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_DEFAULT_REGION": "us-east-1"}


def git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{what}": "a" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-c", "init.defaultBranch=main", *arguments]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **who}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def read_yaml(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def run_workflow(path: Path, world: World, *, event: str, revision: str, fork: bool = False) -> list[Ran]:
    """Run the jobs of a workflow for an event: `push`, `pull_request` or `schedule`. One that needs a failed one is not
    run.
    """
    workflow = read_yaml(path)
    head = {"repo": {"full_name": "somebody/fork" if fork else "us/ours"}}
    github = {
        "event_name": event,
        "ref": "refs/heads/main",
        "run_id": "1",
        "run_attempt": "1",
        "repository": "us/ours",
        "event": {"pull_request": {"head": head}},
    }
    base = {"github": github, "vars": world.variables, "secrets": world.secrets}
    needs: dict[str, Any] = {}
    ran: list[Ran] = []
    for name, job in workflow["jobs"].items():
        contexts = {**base, "needs": needs}
        failed = {each.name for each in ran if each.code}
        wanted = evaluate(job["if"], contexts) if "if" in job else True
        needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        if not wanted or failed & set(needed):
            continue
        cells = _cells(job.get("strategy", {}).get("matrix"), contexts)
        for index, cell in enumerate(cells):
            strategy = {"job-index": index, "job-total": len(cells)}
            of_job = {**contexts, "matrix": cell, "strategy": strategy}
            outputs, done = _run_job(name, job, {**workflow.get("env", {})}, of_job, world, revision)
            ran.append(done)
            needs[name] = {"outputs": outputs}
    return ran


def _cells(matrix: Any, contexts: Mapping[str, Any]) -> list[dict[str, Any]]:
    if matrix is None:
        return [{}]
    matrix = interpolated(matrix, contexts) if isinstance(matrix, str) else matrix
    if "include" in matrix:
        return list(matrix["include"])
    return [dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())]


def _run_job(
    name: str, job: Any, env: Mapping[str, str], contexts: Mapping[str, Any], world: World, revision: str
) -> tuple[dict[str, str], Ran]:
    folder, environment = world.checkout(revision)
    environment |= {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(folder),
        "GITHUB_EVENT_NAME": contexts["github"]["event_name"],
        "GITHUB_REF_NAME": "v1.0",
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": contexts["github"]["repository"],
    }
    environment |= {key: shown(interpolated(value, contexts)) for key, value in env.items()}
    code, printed, summary = 0, "", ""
    steps: dict[str, Any] = {}
    for number, step in enumerate(job["steps"]):
        contexts = {**contexts, "steps": steps}
        condition = step.get("if", "")
        condition = condition.strip().removeprefix("${{").removesuffix("}}")
        goes_on = "cancelled()" in condition
        if (code and not goes_on) or (condition and not evaluate(condition, contexts)):
            continue
        if step.get("uses", "").startswith(_CREDENTIALS):
            environment |= world.credentials(interpolated(step["with"]["role-to-assume"], contexts))
        if "run" not in step:
            continue
        files = {key: folder.parent / f"{key.lower()}-{number}" for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for path in files.values():
            path.touch()
        of_step = {key: shown(interpolated(value, contexts)) for key, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", interpolated(step["run"], contexts)],
            cwd=folder,
            env={**environment, **of_step, **{key: str(path) for key, path in files.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed += done.stdout
        summary += files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")
        code = code or done.returncode
        lines = files["GITHUB_OUTPUT"].read_text(encoding="utf-8").splitlines()
        steps[step.get("id", str(number))] = {"outputs": dict(line.split("=", 1) for line in lines)}
    outputs = {
        key: shown(interpolated(value, {**contexts, "steps": steps})) for key, value in job.get("outputs", {}).items()
    }
    return outputs, Ran(name=name, folder=folder, code=code, printed=printed, summary=summary)


def run_gitlab_job(
    jobs: Mapping[str, Any],
    name: str,
    world: World,
    *,
    revision: str,
    variables: Mapping[str, str],
    node: tuple[int, int] = (1, 1),
    artifacts: Sequence[Path] = (),
) -> Ran:
    """Run one job of a pipeline: its `before_script` and `script` in one shell, then its `after_script`."""
    job = _extended(jobs, name)
    folder, environment = world.checkout(revision)
    for path in artifacts:
        (folder / path.name).write_bytes(path.read_bytes())
    environment |= {
        "GITLAB_CI": "true",
        "CI_PROJECT_DIR": str(folder),
        "CI_NODE_INDEX": str(node[0]),
        "CI_NODE_TOTAL": str(node[1]),
        **world.variables,
        **world.secrets,
        **variables,
    }
    for key, value in {**jobs.get("variables", {}), **job.get("variables", {})}.items():
        environment[key] = re.sub(r"\$(\w+)", lambda found: environment.get(found[1], ""), str(value))
    if role := environment.pop("AWS_ROLE_ARN", ""):
        environment |= world.credentials(role)
    script = "\n".join([*job.get("before_script", ()), *job["script"]])
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
    done = subprocess.run(
        [*command, script], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    after = "\n".join(job.get("after_script", ()))
    subprocess.run([*command, after], cwd=folder, env=environment, check=True)
    return Ran(name=name, folder=folder, code=done.returncode, printed=done.stdout)


def _extended(jobs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A job with what it extends: tables are merged, all else is replaced."""
    job = dict(jobs[name])
    if "extends" not in job:
        return job
    base = _extended(jobs, job.pop("extends"))
    return {**base, **{key: {**base.get(key, {}), **v} if isinstance(v, dict) else v for key, v in job.items()}}
