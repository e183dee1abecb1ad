"""`mlcbuild test`: which tests run, what comes of them, what is kept of it, and what other commands say of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mlcbuild.cli.main import main
from tests.cli.checks_workspace import check, write_check_rule

Capture = pytest.CaptureFixture[str]
ROOT = """\
[workspace]
name = "checks"
rules = ["//checks:rules.py"]

[[tool]]
name = "sh"
path = "/bin/sh"
"""
TEXTS = {
    "good": "short",
    "bad": "longer than it may be",
    "crash": "crash",
    "hang": "hang",
    "bug": "bug",
}
MADE = """
[[command]]
name = "made"
tool = "//:sh"
arguments = ["-c", "%s > {outputs}"]
outputs = ["made.txt"]
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with the texts, and no targets yet."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "BUILD.toml").write_text(ROOT)
    write_check_rule(root)
    for name, text in TEXTS.items():
        (root / f"checks/{name}.txt").write_text(text)
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


Tested = Callable[..., dict[str, dict[str, object]]]


@pytest.fixture
def tested(capsys: Capture) -> Tested:
    """Run `mlcbuild test` with arguments; answers what it says of each test, by the target's name."""

    def run(*arguments: str, code: int = 0) -> dict[str, dict[str, object]]:
        capsys.readouterr()
        assert main(["test", "--output=json", "--quiet", *arguments]) == code, capsys.readouterr().err
        document = json.loads(capsys.readouterr().out)
        assert document["exit_code"] == code
        return {label.rpartition(":")[2]: found for label, found in document["tests"].items()}

    return run


def write_targets(root: Path, *targets: str) -> None:
    (root / "checks/BUILD.toml").write_text("".join(targets))


def statuses(found: dict[str, dict[str, object]]) -> dict[str, object]:
    return {name: ("cached " if each["cached"] else "") + str(each["status"]) for name, each in found.items()}


def lines(capsys: Capture, arguments: Sequence[str], code: int = 0) -> list[str]:
    capsys.readouterr()
    assert main(list(arguments)) == code
    return capsys.readouterr().out.splitlines()


def test_what_passed_is_cached_and_what_failed_runs_again(root: Path, tested: Tested) -> None:
    write_targets(root, check("good"), check("bad"))
    first = tested("//...", code=3)
    assert statuses(first) == {"good": "PASSED", "bad": "FAILED"}
    assert first["bad"]["summary"] == "21 characters, at most 10\nwrite less"
    assert first["bad"]["figures"] == {"characters": 21}
    assert statuses(tested("//...", code=3)) == {"good": "cached PASSED", "bad": "FAILED"}
    write_targets(root, check("good", more="at_most = 6"), check("bad", more="at_most = 30"))
    changed = tested("//...")
    assert statuses(changed) == {"good": "PASSED", "bad": "PASSED"}
    assert changed["bad"]["figures"] == {"characters": 21}
    assert statuses(tested("//...")) == {"good": "cached PASSED", "bad": "cached PASSED"}


def test_a_result_comes_from_the_cache_of_another_checkout_with_its_figures_and_its_log(
    root: Path, tested: Tested, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    write_targets(root, check("good"))
    tested("//...")
    other = tmp_path / "other"
    subprocess.run(["cp", "-r", str(root), str(other)], check=True)
    subprocess.run(["rm", "-rf", str(other / ".mlcbuild")], check=True)
    monkeypatch.chdir(other)
    assert main(["test", "//...", "--test-output=all"]) == 0
    out, err = capsys.readouterr()
    assert "(cached) PASSED" in out
    assert "5 characters, at most 10" in out
    assert "the text is: short" in err
    assert json.loads((other / ".mlcbuild/testlogs/default/checks/good/test.json").read_text())["passed"] is True


def test_the_files_of_a_failure_replace_those_of_a_success(root: Path, tested: Tested) -> None:
    folder = root / ".mlcbuild/testlogs/default/checks/good"
    write_targets(root, check("good"))
    tested("//...")
    assert json.loads((folder / "test.json").read_text())["figures"] == {"characters": 5}
    assert (folder / "test.log").read_text().splitlines()[0] == "the text is: short"
    (root / "checks/good.txt").write_text("no longer short")
    tested("//...", code=3)
    document = json.loads((folder / "test.json").read_text())
    assert (document["passed"], document["figures"]) == (False, {"characters": 15})
    assert (folder / "test.log").read_text().splitlines()[-1] == "write less"
    (root / "checks/good.txt").write_text("crash")
    tested("//...", code=3)
    assert not (folder / "test.json").exists(), "the figures of another run"
    assert "crashed with SIGSEGV" in (folder / "test.log").read_text()
    (root / "checks/good.txt").write_text("short")
    assert statuses(tested("//...")) == {"good": "cached PASSED"}
    assert json.loads((folder / "test.json").read_text())["figures"] == {"characters": 5}


def test_a_crash_a_hang_and_a_bug_fail_with_their_reasons_and_end_no_other_test(root: Path, tested: Tested) -> None:
    write_targets(root, *(check(name) for name in TEXTS))
    found = tested("//...", "--test-timeout", "1", "--jobs", "1", code=3)
    assert statuses(found) == {
        "good": "PASSED",
        "bad": "FAILED",
        "crash": "FAILED",
        "hang": "TIMEOUT",
        "bug": "FAILED",
    }
    assert "crashed with SIGSEGV" in str(found["crash"]["summary"])
    assert "longer than its limit of 1 s" in str(found["hang"]["summary"])
    assert found["bug"]["summary"] == "ValueError: not what it expects"
    log = (root / str(found["bug"]["log"])).read_text()
    assert "Traceback" in log
    assert "checks/stages/check.py" in log


def test_what_cannot_be_built_is_told_as_such(root: Path, tested: Tested) -> None:
    write_targets(root, MADE % "false", check("good"), check("uses", ":made"))
    assert statuses(tested("//...", "--keep-going", code=1)) == {"good": "PASSED", "uses": "FAILED TO BUILD"}
    write_targets(root, MADE % "echo fine", check("uses", ":made"))
    assert statuses(tested("//...")) == {"uses": "PASSED"}


def test_a_build_makes_what_a_test_runs_and_runs_no_test(root: Path, capsys: Capture) -> None:
    write_targets(root, MADE % "echo fine", check("crash"), check("uses", ":made"))
    assert main(["build", "//checks:uses", "//checks:crash", "--output=json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report["action_results"]) == ["//checks:made Command"]
    assert not (root / ".mlcbuild/testlogs").exists()
    write_targets(root, MADE % "false", check("uses", ":made"))
    assert main(["build", "//checks:uses"]) == 1
    assert "//checks:uses was not built: //checks:made Command failed" in capsys.readouterr().err


def test_wildcards_mean_tests_and_a_label_means_its_target(root: Path, capsys: Capture) -> None:
    write_targets(root, MADE % "echo fine", check("good"), check("left", "good.txt", 'tags = ["manual"]'))
    assert main(["test", "//...", "--output=json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (list(report["tests"]), list(report["targets"])) == (["//checks:good"], ["//checks:good"])
    assert main(["test", "//checks:made", "//checks:left", "--output=json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report["tests"]) == ["//checks:left"]
    assert set(report["targets"]) == {"//checks:made", "//checks:left"}
    assert (root / "mlcbuild-out/default/checks/made/made.txt").read_text() == "fine\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["//checks:made"], "no test target matches"),
        (["//...", "--test-tag-filters=unknown"], "no test is left of 1"),
        (["//...", "--test-size-filters=enormous"], "no test is left of 1"),
    ],
)
def test_without_a_test_the_exit_code_is_4(root: Path, capsys: Capture, arguments: list[str], said: str) -> None:
    write_targets(root, MADE % "echo fine", check("good"))
    assert main(["test", *arguments]) == 4
    assert said in capsys.readouterr().err


def test_tags_and_sizes_choose_tests(root: Path, tested: Tested, capsys: Capture) -> None:
    write_targets(
        root,
        check("a", "good.txt", 'tags = ["nightly", "slow"]\nsize = "large"'),
        check("b", "good.txt", 'tags = ["nightly"]\nsize = "small"'),
        check("c", "good.txt"),
    )
    assert list(tested("//...", "--test-tag-filters=nightly")) == ["a", "b"]
    assert list(tested("//...", "--test-tag-filters=nightly,-slow")) == ["b"]
    assert list(tested("//...", "--test-tag-filters=-nightly")) == ["c"]
    assert list(tested("//...", "--test-size-filters=small,medium")) == ["b", "c"]
    assert list(tested("//...", "--test-size-filters=-small")) == ["a", "c"]
    assert main(["test", "//...", "--test-size-filters=huge"]) == 2
    assert '"huge" is none of small, medium, large, enormous' in capsys.readouterr().err


def test_results_are_made_anew_where_that_is_asked_for(root: Path, tested: Tested) -> None:
    write_targets(root, MADE % "echo fine", check("uses", ":made"), check("never", "good.txt", 'tags = ["external"]'))
    assert statuses(tested("//...")) == {"uses": "PASSED", "never": "PASSED"}
    assert statuses(tested("//...")) == {"uses": "cached PASSED", "never": "PASSED"}
    assert statuses(tested("//...", "--no-cache-test-results")) == {"uses": "PASSED", "never": "PASSED"}
    assert statuses(tested("//...", "--cache-test-results")) == {"uses": "cached PASSED", "never": "PASSED"}


def test_several_runs_of_a_test_have_a_folder_each(root: Path, tested: Tested, capsys: Capture) -> None:
    write_targets(root, check("good"), check("bad"))
    found = tested("//...", "--runs-per-test", "3", code=3)
    assert statuses(found) == {"good": "PASSED", "bad": "FAILED"}
    runs = found["bad"]["runs"]
    assert isinstance(runs, list)
    assert len(runs) == 3
    assert [run["log"] for run in runs] == [
        f".mlcbuild/testlogs/default/checks/bad/run_{number}_of_3/test.log" for number in (1, 2, 3)
    ]
    assert all((root / run["log"]).is_file() for run in runs)
    shown = lines(capsys, ["test", "//checks:bad", "--runs-per-test", "2"], 3)
    assert "FAILED in 2 out of 2 in " in shown[0]


def test_junit_has_a_case_for_each_test(root: Path, tested: Tested) -> None:
    write_targets(root, MADE % "false", *(check(name) for name in TEXTS), check("uses", ":made"))
    tested("//checks:all", "--test-timeout", "1", "--keep-going", "--junit", "junit.xml", code=1)
    suite = ElementTree.parse(root / "junit.xml").getroot()[0]
    cases = {str(case.get("name")).rpartition(":")[2]: case for case in suite.iter("testcase")}
    found = {name: [child.tag for child in case if child.tag != "system-out"] for name, case in cases.items()}
    assert found == {
        "good": [],
        "bad": ["failure"],
        "crash": ["failure"],
        "hang": ["failure"],
        "bug": ["failure"],
        "made": ["failure"],
        "uses": ["skipped"],
    }
    failure = cases["bad"].find("failure")
    assert failure is not None
    assert "21 characters, at most 10" in str(failure.get("message"))
    assert "the text is: longer than it may be" in str(failure.text)
    said = cases["good"].find("system-out")
    assert said is not None
    assert "5 characters, at most 10" in str(said.text)


def test_a_test_that_no_machine_can_run_is_skipped_unless_it_is_named(root: Path, tested: Tested) -> None:
    write_targets(root, check("good"), check("bad"))
    rules = root / "checks/rules.py"
    needs = 'requirements=ExecutionRequirements(gpus=4096 if context.target.label.name == "good" else 0),'
    text = rules.read_text().replace('parameters={"at_most"', f'{needs}\n        parameters={{"at_most"')
    rules.write_text(f"from mlcbuild.engine.action import ExecutionRequirements\n{text}")
    (root / "checks/bad.txt").write_text("ok")
    found = tested("//...", "--junit", "junit.xml")
    assert statuses(found) == {"good": "SKIPPED", "bad": "PASSED"}
    assert "GPU" in str(found["good"]["summary"])
    suite = ElementTree.parse(root / "junit.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("skipped"), suite.get("errors")) == ("0", "1", "0")
    named = tested("//checks:good", code=36)
    assert statuses(named) == {"good": "NO STATUS"}
    # Nobody names what a program lists.
    assert statuses(tested("//checks:good", "--skip-incompatible-explicit-targets")) == {"good": "SKIPPED"}


def test_what_is_named_beside_tests_is_built_unless_only_tests_are_asked_for(root: Path, tested: Tested) -> None:
    write_targets(root, MADE % "echo fine", check("good"))
    made = root / "mlcbuild-out/default/checks/made/made.txt"
    assert statuses(tested("//checks:made", "//checks:good", "--build-tests-only")) == {"good": "PASSED"}
    assert not made.exists()
    assert statuses(tested("//checks:made", "//checks:good")) == {"good": "cached PASSED"}
    assert made.read_text() == "fine\n"


def test_a_failed_test_is_told_with_its_log_if_that_is_asked_for(root: Path, capsys: Capture) -> None:
    write_targets(root, check("good"), check("bad"))
    assert main(["test", "//..."]) == 3
    out, err = capsys.readouterr()
    assert "FAIL: //checks:bad (see .mlcbuild/testlogs/default/checks/bad/test.log)" in err
    assert "the text is" not in err
    assert out.splitlines()[-1] == "Executed 2 out of 2 tests: 1 test passes, 1 fails."
    assert main(["test", "//...", "--test-output=errors"]) == 3
    err = capsys.readouterr().err
    assert "Test output for //checks:bad:" in err
    assert "the text is: longer than it may be" in err
    assert "the text is: short" not in err
    assert main(["test", "//...", "--test-output=all"]) == 3
    assert "the text is: short" in capsys.readouterr().err


def test_other_commands_know_tests(root: Path, tested: Tested, capsys: Capture) -> None:
    write_targets(root, MADE % "echo fine", check("uses", ":made"), check("good"))
    found = lines(capsys, ["query", 'kind(".*_test", //...)'])
    assert found == ["//checks:good", "//checks:uses"]
    assert any("Check" in line for line in lines(capsys, ["aquery", "//checks:good"]))
    assert any("Check" in line for line in lines(capsys, ["explain", "//checks:good"]))
    tested("//...")
    assert not any("would run" in line for line in lines(capsys, ["explain", "//checks:good"]))
    lines(capsys, ["matrix", "//..."])
    assert main(["report", "--to", "report.html"]) == 0
    assert "//checks:good" in Path("report.html").read_text()
    assert any("Check" in line for line in lines(capsys, ["log", "what-ran"]))


def test_affected_tests_are_those_whose_actions_differ(root: Path, capsys: Capture) -> None:
    write_targets(root, check("good"), check("bad"))
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@example.org commit -qm one"):
        subprocess.run(["git", *command.split()], cwd=root, check=True)
    assert lines(capsys, ["affected", "--since", "HEAD"]) == []
    (root / "checks/good.txt").write_text("other")
    assert lines(capsys, ["affected", "--since", "HEAD"]) == ["//checks:good"]
    write_targets(root, check("good"), check("bad", more="at_most = 12"))
    assert lines(capsys, ["affected", "--since", "HEAD"]) == ["//checks:bad", "//checks:good"]
