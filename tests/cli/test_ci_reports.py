"""JUnit, job summary, Code Quality and annotations, driven by events."""

from __future__ import annotations

import json
import re
from pathlib import Path

import junitparser
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.reports.annotations import MOST_OF_A_STEP, github_lines
from mlcbuild.cli.reports.code_quality import code_quality_document
from mlcbuild.cli.reports.findings import Finding, FindingKind, findings
from mlcbuild.cli.reports.finished_build import BuildCollector
from mlcbuild.cli.reports.job_summary import MOST_BYTES, append_job_summary, job_summary
from mlcbuild.cli.reports.junit import junit_text
from mlcbuild.engine.build_events import BuildStarted, TargetSkipped
from mlcbuild.errors import InterruptedBuildError, Location, WorkspaceError, WorkspaceErrors
from tests.cli.ci_reports import Snapshot, checked, collected, failed
from tests.cli.report_story import STORY


def test_a_junit_report(snapshot: Snapshot) -> None:
    text = junit_text(collected(STORY))
    checked(text)
    snapshot("junit", text)


def test_another_program_reads_the_same_from_a_junit_report(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(junit_text(collected([*STORY[:2], failed("it broke", b"the log")])), encoding="utf-8")
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    case, other = suite
    assert (case.name, case.classname, case.time) == ("//m:a", "m", 0.5)
    (result,) = case.result
    assert isinstance(result, junitparser.Failure)
    assert result.text == "//m:a Link failed: it broke\nthe log"
    assert other.name == "//m:b"
    assert other.is_skipped
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (2, 1, 0, 1)


@given(message=st.text(), log=st.binary())
def test_any_message_and_log_makes_a_junit_report_that_can_be_read(message: str, log: bytes) -> None:
    root = checked(junit_text(collected([failed(message, log)])))
    assert root.find(".//failure") is not None


def test_a_failure_has_the_end_of_a_long_log() -> None:
    log = b"".join(b"line %d\n" % number for number in range(50_000))
    text = junit_text(collected([failed("it broke", log)]))
    assert "line 49999" in text
    assert "… 48,000 lines before" in text
    assert len(text) < 300_000


def test_a_job_summary(snapshot: Snapshot) -> None:
    snapshot("job-summary", job_summary(collected(STORY)))


def test_targets_that_cannot_be_built_for_their_platform_are_skipped() -> None:
    collector = BuildCollector()
    collector(TargetSkipped(label="//m:c", reason="q4bf16_1 needs sm_80 or later"))
    build = collector.finish(
        exit_code=ExitCode.OK, failure=None, command="", invocation="", began=0.0, wall_seconds=1.0, remote=None
    )
    (case,) = checked(junit_text(build)).iter("testcase")
    skipped = case.find("skipped")
    assert skipped is not None
    assert (case.attrib["name"], skipped.attrib["message"]) == ("//m:c", "q4bf16_1 needs sm_80 or later")
    summary = job_summary(build)
    assert summary.startswith("### mlcbuild: 1 skipped\n")
    assert "- `//m:c`: q4bf16\\_1 needs sm\\_80 or later\n" in summary


def test_errors_of_a_workspace_are_in_all_reports(snapshot: Snapshot) -> None:
    errors = WorkspaceErrors(
        (
            WorkspaceError("no a", location=Location(path="m/BUILD.toml", line=3, column=5), advice=("try b",)),
            WorkspaceError("no c: 50%, or more", location=Location(path="BUILD.toml")),
        )
    )
    build = collected((), ExitCode.ANALYSIS_FAILED, errors)
    junit = junit_text(build)
    checked(junit)
    found = findings(build, root=None, environment={})
    quality = json.dumps(code_quality_document(found), indent=2)
    snapshot("ci-reports-of-errors", "\n".join([junit, job_summary(build), quality, *github_lines(found), ""]))


def test_a_build_that_was_interrupted_looks_like_no_success() -> None:
    for failure in (None, KeyboardInterrupt(), InterruptedBuildError("interrupted")):
        root = checked(junit_text(collected([STORY[0]], ExitCode.INTERRUPTED, failure)))
        cases = {case.attrib["name"]: case for case in root.iter("testcase")}
        assert cases["//m:a"].find("skipped") is not None
        assert failure is None or any(case.find("error") is not None for case in cases.values())
        summary = job_summary(collected([STORY[0]], ExitCode.INTERRUPTED, failure))
        assert "2 not built (exit code 8: interrupted)" in summary


def test_a_command_that_ended_for_no_told_reason_is_an_error_of_the_report() -> None:
    root = checked(junit_text(collected((), ExitCode.LOCAL_ENVIRONMENT)))
    assert [case.attrib["name"] for case in root.iter("testcase")] == ["the build ended with exit code 36"]


def unescaped(value: str, *, is_property: bool) -> str:
    """As GitHub's runner reads it."""
    if is_property:
        value = value.replace("%3A", ":").replace("%2C", ",")
    return value.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


@given(title=st.text(min_size=1), message=st.text(min_size=1), path=st.text(min_size=1))
def test_an_annotation_is_one_line_that_says_what_it_was_made_of(title: str, message: str, path: str) -> None:
    place = Location(path=path, line=3, column=4)
    found = Finding(kind=FindingKind.ERROR, title=title, message=message, location=place)
    (line,) = github_lines([found])
    assert "\n" not in line
    assert "\r" not in line
    parts = re.fullmatch(r"::error file=([^:,]*),line=3,col=4,title=([^:,]*)::(.*)", line, re.DOTALL)
    assert parts is not None
    assert unescaped(parts[1], is_property=True) == path
    assert unescaped(parts[2], is_property=True) == title
    assert unescaped(parts[3], is_property=False) == message


def test_the_tenth_annotation_of_many_counts_the_others() -> None:
    def lines(count: int) -> list[str]:
        found = [Finding(kind=FindingKind.ERROR, title=f"error {n}", message="it broke") for n in range(count)]
        return github_lines(found)

    assert len(lines(MOST_OF_A_STEP)) == MOST_OF_A_STEP
    assert lines(MOST_OF_A_STEP)[-1] == "::error title=error 9::it broke"
    assert len(lines(25)) == MOST_OF_A_STEP
    assert lines(25)[-1].startswith("::error title=16 more errors::error 9%0Aerror 10%0A")


def test_an_error_that_moved_keeps_its_fingerprint_and_two_equal_ones_have_two() -> None:
    def fingerprints(*lines: int) -> list[object]:
        place = [Location(path="BUILD.toml", line=line) for line in lines]
        found = [Finding(kind=FindingKind.ERROR, title="no x", message="no x", location=each) for each in place]
        return [item["fingerprint"] for item in code_quality_document(found)]

    assert fingerprints(3) == fingerprints(7)
    assert len(set(fingerprints(3, 7))) == 2


@given(log=st.text(alphabet="`~a\n|<>", max_size=60))
def test_no_log_ends_its_block_in_a_job_summary(log: str) -> None:
    summary = job_summary(collected([failed("it broke", log.encode())]))
    fence = ""
    for line in summary.splitlines():
        marks = re.fullmatch(r"(`{3,})(text)?", line)
        if marks and not fence and marks[2]:
            fence = marks[1]
        elif line == fence:
            fence = ""
        elif not fence:
            assert line not in log.splitlines() or not line.strip() or line == "a"
    assert not fence


def test_a_job_summary_stays_within_the_limit_of_a_step_with_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    log = b"".join(b"%d %s\n" % (number, b"x" * 300) for number in range(100))
    events = [failed("it broke", log, f"//m:{number:05}") for number in range(3_000)]
    build = collected([BuildStarted(invocation="", targets=()), *events])
    for _ in range(6):
        append_job_summary(path, build)
        assert path.stat().st_size <= MOST_BYTES
    assert "and 2,500 more targets" in path.read_text(encoding="utf-8")
    path.write_bytes(b"#" * MOST_BYTES)
    append_job_summary(path, build)
    assert path.stat().st_size == MOST_BYTES
    path.write_bytes(b"#" * (MOST_BYTES - 8_000))
    append_job_summary(path, build)
    assert path.stat().st_size <= MOST_BYTES
    assert "More does not fit into this summary" in path.read_text()


def test_places_are_those_of_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    build = collected([failed("it broke")])
    (found,) = findings(build, root=tmp_path / "models", environment={"GITHUB_WORKSPACE": str(tmp_path)})
    assert str(found.location) == "models/m/BUILD.toml:3:1"
    for environment in ({}, {"CI_PROJECT_DIR": str(tmp_path / "elsewhere")}):
        (found,) = findings(build, root=tmp_path / "models", environment=environment)
        assert str(found.location) == "m/BUILD.toml:3:1"
