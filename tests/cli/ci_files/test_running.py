"""The commands of our workflows and pipelines do what they should: in a small workspace, with a bucket and its roles.

The bucket's users have the policies of `examples/ci/aws/`, so what a role may do is enforced by the server.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mlcbuild.cli.main import main
from tests.cli.checks_workspace import check, write_check_rule
from tests.cli.ci_files.runners import Ran, World, git, read_yaml, run_gitlab_job, run_workflow
from tests.remote.seaweed import Seaweed, User, running

FILES = Path(__file__).parents[3] / "examples/ci"
BUCKET = "of-the-tests"
USERS = {role: (f"AKIA{role.upper()}00000000", f"the-secret-of-a-{role}") for role in ("reader", "writer")}
BUILD_FILE = """\
[workspace]
name = "example"

[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "{text}-{size}"
matrix = { text = ["a", "b"], size = ["small", "large"] }
tool = ":sh"
inputs = ["{text}.txt"]
outputs = ["{text}.{size}"]
arguments = ["-c", "read line < $0; echo $line {size} > $1", "{inputs}", "{outputs}"]
"""
ALL = {f"//:{text}-{size}" for text in "ab" for size in ("small", "large")}

pytestmark = pytest.mark.slow


def policy(role: str) -> str:
    """The policy that people copy, for the bucket of the tests, in which each test has a folder."""
    text = (FILES / "aws" / f"{role}-policy.json").read_text()
    return text.replace("BUCKET/mlcbuild/", f"{BUCKET}/*/mlcbuild/").replace(":::BUCKET", f":::{BUCKET}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    users = [
        User(name=role, access_key=access, secret_key=secret, policy=policy(role))
        for role, (access, secret) in USERS.items()
    ]
    with running(tmp_path_factory.mktemp("seaweed"), users=users) as made:
        yield made


@pytest.fixture
def world(server: Seaweed, tmp_path: Path) -> World:
    """A repository whose branch `main` has a workspace, and whose branch `merged` merges a pull request into it."""
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet")
    (repository / "BUILD.toml").write_text(BUILD_FILE)
    (repository / ".gitignore").write_text("mlcbuild-out/\n.mlcbuild/\n.cache/\n")
    (repository / "requirements-mlcbuild.txt").write_text("mlcbuild[cuda,release,s3]\n")  # of this environment
    for name in "ab":
        (repository / f"{name}.txt").write_text(f"{name}\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "A workspace")
    git(repository, "checkout", "--quiet", "-b", "change")
    (repository / "a.txt").write_text("changed\n")
    git(repository, "commit", "--quiet", "-am", "Change a")
    git(repository, "checkout", "--quiet", "-b", "merged", "main")
    command = ["openssl", "genpkey", "-algorithm", "ed25519"]
    key = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    git(repository, "merge", "--quiet", "--no-ff", "-m", "Merge", "change")
    return World(
        repository=repository,
        folder=tmp_path,
        endpoint=server.endpoint,
        users=USERS,
        secrets={"MLCBUILD_RELEASE_KEY": key},
        variables={
            "MLCBUILD_REMOTE": f"s3://{BUCKET}/{tmp_path.name}/mlcbuild",
            "AWS_READER_ROLE": "reader",
            "AWS_WRITER_ROLE": "writer",
            "AWS_REGION": "us-east-1",
        },
    )


def objects(server: Seaweed, world: World) -> set[str]:
    prefix = f"{world.folder.name}/mlcbuild/"
    listed = server.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
    return {each["Key"] for each in listed}


def cases(ran: list[Ran]) -> set[str]:
    """The targets that the JUnit reports of jobs have, none of them twice."""
    found = [
        case.attrib["name"]
        for job in ran
        if (job.folder / "junit.xml").exists()
        for case in ElementTree.parse(job.folder / "junit.xml").getroot().iter("testcase")
        if case.find("failure") is None and case.find("error") is None
    ]
    assert len(found) == len(set(found))
    return set(found)


def add_tests(world: World, *, change: str) -> None:
    """Add a test of each text to `main`; the pull request gives a.txt another text."""
    repository = world.repository
    git(repository, "checkout", "--quiet", "main")
    build_file = (repository / "BUILD.toml").read_text()
    (repository / "BUILD.toml").write_text(build_file.replace("\n\n", '\nrules = ["//checks:rules.py"]\n\n', 1))
    write_check_rule(repository)
    (repository / "checks/BUILD.toml").write_text(check("a", "//:a.txt") + check("b", "//:b.txt"))
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Tests")
    git(repository, "checkout", "--quiet", "change")
    (repository / "a.txt").write_text(f"{change}\n")
    git(repository, "commit", "--quiet", "-am", "Change a again")
    git(repository, "checkout", "--quiet", "-B", "merged", "main")
    git(repository, "merge", "--quiet", "--no-ff", "-m", "Merge", "change")


def outcomes(ran: list[Ran]) -> dict[str, bool]:
    """Whether each test passed that the JUnit reports of jobs have."""
    reports = [job.folder / "tests.xml" for job in ran if (job.folder / "tests.xml").exists()]
    found = [case for path in reports for case in ElementTree.parse(path).getroot().iter("testcase")]
    assert len(found) == len({case.attrib["name"] for case in found})
    return {case.attrib["name"]: case.find("failure") is None for case in found}


def report(job: Ran) -> Any:
    return json.loads((job.folder / "report.json").read_text())


def verified(job: Ran, world: World) -> bool:
    """Whether the release of a job is what somebody signed who has the key."""
    public = world.folder / "release.pub"
    private = world.secrets["MLCBUILD_RELEASE_KEY"]
    subprocess.run(["openssl", "pkey", "-pubout", "-out", str(public)], input=private, text=True, check=True)
    return main(["verify", str(job.folder / "release"), "--key", str(public)]) == 0


def succeeded(ran: list[Ran]) -> list[Ran]:
    for job in ran:
        assert job.code == 0, job.printed
    return ran


def test_on_github_main_writes_a_pull_request_reads_and_a_release_takes_all_from_the_cache(
    server: Seaweed, world: World
) -> None:
    workflow, release = FILES / "github/mlcbuild.yml", FILES / "github/mlcbuild-release.yml"

    (job,) = run_workflow(release, world, event="push", revision="main")
    assert job.code == 10
    assert "| `//:a-large` | **not cached** |" in job.summary

    plan, *builds = succeeded(run_workflow(workflow, world, event="push", revision="main"))
    assert plan.name == "plan"
    assert len(builds) == 2
    assert cases(builds) == ALL
    assert all(job.summary.startswith("### mlcbuild: ") for job in builds)
    written = objects(server, world)
    assert sum("/ac/" in name for name in written) == len(ALL)

    # What does not change is not built, and what changes is not written.
    plan, *builds = succeeded(run_workflow(workflow, world, event="pull_request", revision="merged"))
    assert cases(builds) == {"//:a-small", "//:a-large"}
    assert objects(server, world) == written

    # Without credentials, as a pull request from a fork, it is built all the same.
    _, *builds = succeeded(run_workflow(workflow, world, event="pull_request", revision="merged", fork=True))
    assert cases(builds) == {"//:a-small", "//:a-large"}
    assert objects(server, world) == written

    (job,) = succeeded(run_workflow(release, world, event="push", revision="main"))
    counts = report(job)["actions"]
    assert counts["remote_hits"] == counts["total"] == len(ALL)
    assert verified(job, world)
    (job,) = run_workflow(release, world, event="push", revision="merged")
    assert job.code == 10
    assert {each["target"] for each in report(job)["not_cached"]} == {"//:a-small", "//:a-large"}


def test_on_github_a_pull_request_that_affects_nothing_has_no_builds(world: World) -> None:
    git(world.repository, "checkout", "--quiet", "main")
    (world.repository / "README.md").write_text("read me\n")
    git(world.repository, "add", ".")
    git(world.repository, "commit", "--quiet", "-m", "A page")
    workflow = FILES / "github/mlcbuild.yml"
    (plan,) = succeeded(run_workflow(workflow, world, event="pull_request", revision="main"))
    assert plan.name == "plan"


def test_on_github_a_nightly_build_runs_everything_anew(server: Seaweed, world: World) -> None:
    workflow = FILES / "github/mlcbuild-nightly.yml"
    _, *builds = succeeded(run_workflow(workflow, world, event="schedule", revision="main"))
    assert cases(builds) == ALL
    assert sum(report(job)["actions"]["executed_local"] for job in builds) == len(ALL)
    assert sum("/ac/" in name for name in objects(server, world)) == len(ALL)


def test_on_github_main_runs_all_tests_and_a_pull_request_those_that_it_affects(server: Seaweed, world: World) -> None:
    add_tests(world, change="short")
    workflow = FILES / "github/mlcbuild.yml"
    _, *builds = succeeded(run_workflow(workflow, world, event="push", revision="main"))
    assert outcomes(builds) == {"//checks:a": True, "//checks:b": True}
    # Others find in the remote cache what has passed.
    written = objects(server, world)
    assert sum("/ac/" in name for name in written) == len(ALL) + len(outcomes(builds))
    _, *builds = succeeded(run_workflow(workflow, world, event="pull_request", revision="merged"))
    assert outcomes(builds) == {"//checks:a": True}
    assert objects(server, world) == written

    git(world.repository, "checkout", "--quiet", "change")
    (world.repository / "a.txt").write_text("longer than it may be\n")
    git(world.repository, "commit", "--quiet", "-am", "Too long")
    git(world.repository, "checkout", "--quiet", "-B", "merged", "main")
    git(world.repository, "merge", "--quiet", "--no-ff", "-m", "Merge", "change")
    _, *builds = run_workflow(workflow, world, event="pull_request", revision="merged")
    assert outcomes(builds) == {"//checks:a": False}
    assert sorted(job.code for job in builds) == [0, 3]
    assert any("21 characters, at most 10" in job.summary for job in builds)


def test_on_gitlab_the_same(server: Seaweed, world: World) -> None:
    jobs = {**read_yaml(FILES / "gitlab/mlcbuild-base.yml"), **read_yaml(FILES / "gitlab/gitlab-ci.yml")}

    def run(name: str, revision: str, *artifacts: Path, **variables: str) -> list[Ran]:
        nodes = jobs[name].get("parallel", 1)
        return [
            run_gitlab_job(
                jobs, name, world, revision=revision, variables=variables, node=(n, nodes), artifacts=artifacts
            )
            for n in range(1, nodes + 1)
        ]

    (job,) = run("release", "main")
    assert job.code == 10
    quality = json.loads((job.folder / "gl-code-quality-report.json").read_text())
    assert {item["check_name"] for item in quality} == {"mlcbuild-not-cached"}
    assert {item["location"]["path"] for item in quality} == {"BUILD.toml"}

    assert cases(succeeded(run("main", "main"))) == ALL
    written = objects(server, world)

    base = git(world.repository, "rev-parse", "main")
    (plan,) = succeeded(run("plan", "merged", CI_MERGE_REQUEST_DIFF_BASE_SHA=base))
    builds = succeeded(run("merge request", "merged", plan.folder / "targets.txt"))
    assert cases(builds) == {"//:a-small", "//:a-large"}
    assert objects(server, world) == written

    (job,) = succeeded(run("release", "main", CI_COMMIT_TAG="v1.0", CI_PROJECT_URL="https://gitlab.example/us/ours"))
    assert report(job)["actions"]["remote_hits"] == len(ALL)
    assert verified(job, world)

    # The child pipeline is merged with the file that its trigger names beside it.
    (plan,) = succeeded(run("plan nightly", "main"))
    child = {**read_yaml(plan.folder / "nightly.yml"), **read_yaml(FILES / "gitlab/mlcbuild-base.yml")}
    child |= {"variables": {**jobs["variables"], **jobs["nightly"]["variables"]}}
    names = [name for name in child if name.startswith("shard ")]
    built = [run_gitlab_job(child, name, world, revision="main", variables={}) for name in names]
    assert cases(succeeded(built)) == ALL
    assert sum(report(job)["actions"]["executed_local"] for job in built) == len(ALL)


def test_on_gitlab_main_runs_all_tests_and_a_merge_request_those_that_it_affects(world: World) -> None:
    add_tests(world, change="longer than it may be")
    jobs = {**read_yaml(FILES / "gitlab/mlcbuild-base.yml"), **read_yaml(FILES / "gitlab/gitlab-ci.yml")}

    def run(name: str, revision: str, *artifacts: Path, count: int = 2, **variables: str) -> list[Ran]:
        return [
            run_gitlab_job(
                jobs, name, world, revision=revision, variables=variables, node=(n, count), artifacts=artifacts
            )
            for n in range(1, count + 1)
        ]

    assert outcomes(succeeded(run("main", "main"))) == {"//checks:a": True, "//checks:b": True}
    base = git(world.repository, "rev-parse", "main")
    (plan,) = succeeded(run("plan", "merged", count=1, CI_MERGE_REQUEST_DIFF_BASE_SHA=base))
    builds = run("merge request", "merged", plan.folder / "targets.txt")
    assert outcomes(builds) == {"//checks:a": False}
    assert sorted(job.code for job in builds) == [0, 3]


def test_at_night_every_test_runs_though_it_has_passed(world: World) -> None:
    add_tests(world, change="short")
    workflow = FILES / "github/mlcbuild-nightly.yml"
    for _ in range(2):
        _, *builds = succeeded(run_workflow(workflow, world, event="schedule", revision="main"))
        assert outcomes(builds) == {"//checks:a": True, "//checks:b": True}
        assert cases(builds) >= ALL
        assert not any("(cached) PASSED" in job.printed for job in builds)


def test_on_gitlab_too(world: World) -> None:
    add_tests(world, change="short")
    jobs = {**read_yaml(FILES / "gitlab/mlcbuild-base.yml"), **read_yaml(FILES / "gitlab/gitlab-ci.yml")}
    (plan,) = succeeded([run_gitlab_job(jobs, "plan nightly", world, revision="main", variables={}, node=(1, 1))])
    child = {**read_yaml(plan.folder / "nightly.yml"), **read_yaml(FILES / "gitlab/mlcbuild-base.yml")}
    child |= {"variables": {**jobs["variables"], **jobs["nightly"]["variables"]}}
    names = [name for name in child if name.startswith("shard ")]
    built = succeeded([run_gitlab_job(child, name, world, revision="main", variables={}) for name in names])
    assert outcomes(built) == {"//checks:a": True, "//checks:b": True}
    assert len(built) > 2, "each test and each text has a job"
    assert not any("<error" in (job.folder / "tests.xml").read_text() for job in built)
