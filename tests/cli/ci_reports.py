"""Builds of events for reports of CI systems, and a JUnit report as the strictest of its readers sees it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree import ElementTree

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.reports.finished_build import BuildCollector, FinishedBuild
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent
from mlcbuild.errors import Location
from tests.cli.report_story import done

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]
# What the schema of Jenkins' xUnit plug-in, the strictest of those in use, lets each element have.
_ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "time", "classname"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"message"},
    "system-out": set(),
}
_CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "testcase": {"failure", "error", "skipped", "system-out"},
}


def collected(
    events: Sequence[BuildEvent], code: ExitCode = ExitCode.BUILD_FAILED, failure: BaseException | None = None
) -> FinishedBuild:
    collector = BuildCollector()
    collector.locate = {"//m:a": Location(path="m/BUILD.toml", line=3, column=1)}.get
    for event in events:
        collector(event)
    return collector.finish(
        exit_code=code,
        failure=failure,
        command="build //m:a //m:b",
        invocation="00000000-0000-4000-8000-000000000000",
        began=0.0,
        wall_seconds=2.0,
        remote=None,
    )


def failed(message: str, log: bytes = b"", label: str = "//m:a", **more: Any) -> ActionFinished:
    event = done("Link", ActionStatus.FAILED, 1.0, 1.5, "local")
    return dataclasses.replace(
        event, identifier=f"{label} Link", owner=label, executor="local", message=message, log=log, **more
    )


def checked(text: str) -> ElementTree.Element:
    """A report as readers see it; fails where one has an element or an attribute that Jenkins' schema has not."""
    root = ElementTree.fromstring(text)
    for element in root.iter():
        assert element.attrib.keys() <= _ATTRIBUTES[element.tag], element.tag
        assert {child.tag for child in element} <= _CHILDREN.get(element.tag, set()), element.tag
    assert re.fullmatch(r"\d+\.\d{3}", root.attrib["time"])
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        for attribute, element_name in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[attribute]) == sum(case.find(element_name) is not None for case in cases)
    return root
