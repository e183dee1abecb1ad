"""The JUnit report of a build (`--junit FILE`), as GitHub, GitLab and Jenkins read it.

One suite, with a test case for each requested target, for each other one of which an action failed, and for each error
that ended the command. Only elements and attributes that the schema of Jenkins' xUnit plug-in has are written:

::

    <testsuites name="mlcbuild" tests failures errors time>
      <testsuite name="mlcbuild" tests failures errors skipped time timestamp>
        <properties><property name value/>…</properties>
        <testcase name="//models:x" classname="models" time="SECONDS">
          <failure type="failed" message>message and log</failure>    an action of the target failed
          <failure type="not cached" message>…</failure>               it has no result, in a build from caches alone
          <skipped message/>                                            another target's failure is the cause, or it
                                                                        cannot be built for its platform
          <system-out>outputs with digests, counts</system-out>
        </testcase>
        <testcase name="MESSAGE" classname="models/BUILD.toml"><error type="error" message>…</error></testcase>
"""

from __future__ import annotations

import re
import time
from xml.etree import ElementTree

import mlcbuild
from mlcbuild.cli.reports.finished_build import CommandError, FailedAction, FinishedBuild, Outcome, TargetResult

_NAME = "mlcbuild"
_LOG_LINES = 2_000
_LOG_CHARACTERS = 256 * 1024
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(build: FinishedBuild) -> str:
    """The report as the text of an XML file, in UTF-8."""
    failures = build.count(Outcome.FAILED) + build.count(Outcome.NOT_CACHED)
    totals = {
        "tests": str(len(build.targets) + len(build.skipped) + len(build.errors)),
        "failures": str(failures),
        "errors": str(len(build.errors)),
    }
    seconds = _seconds(build.wall_seconds)
    root = ElementTree.Element("testsuites", {"name": _NAME, **totals, "time": seconds})
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": _NAME,
            **totals,
            "skipped": str(build.count(Outcome.NOT_BUILT) + len(build.skipped)),
            "time": seconds,
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(build.began)),
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(build).items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": _xml(value)})
    for error in build.errors:
        _add_error(suite, error)
    for target in build.targets:
        _add_target(suite, target)
    for label, reason in build.skipped.items():
        ElementTree.SubElement(_case(suite, label, 0.0), "skipped", {"message": _xml(reason)})
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _properties(build: FinishedBuild) -> dict[str, str]:
    counts = build.finished.counts if build.finished else ()
    return {
        "mlcbuild": mlcbuild.__version__,
        "command": build.command,
        "invocation_id": build.invocation,
        "exit_code": str(int(build.exit_code)),
        **({"digest_function": build.digest_function} if build.digest_function else {}),
        **{f"actions.{status.value}": str(count) for status, count in counts},
    }


def _add_error(suite: ElementTree.Element, error: CommandError) -> None:
    place = error.location
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {"name": _xml(error.head), "classname": _xml(place.path if place else _NAME), "time": _seconds(0.0)},
    )
    head = f"{place}: {error.head}" if place else error.head
    element = ElementTree.SubElement(case, "error", {"type": "error", "message": _xml(head)})
    element.text = _xml(f"{place}: {error.whole}" if place else error.whole)


def _add_target(suite: ElementTree.Element, target: TargetResult) -> None:
    case = _case(suite, target.label, target.total.seconds)
    match target.outcome:
        case Outcome.FAILED | Outcome.NOT_CACHED:
            first = target.failures[0] if target.failures else None
            message = f"{first.title} {first.words}: {first.message}" if first else target.reason
            attributes = {"type": target.outcome.value, "message": _xml(message.splitlines()[0])}
            element = ElementTree.SubElement(case, "failure", attributes)
            told = [_told(failed) for failed in target.failures] or [target.reason]
            element.text = _xml("\n\n".join(told))
        case Outcome.NOT_BUILT:
            ElementTree.SubElement(case, "skipped", {"message": _xml(target.reason)})
        case Outcome.BUILT:
            pass
    ElementTree.SubElement(case, "system-out").text = _xml(_account(target))


def _case(suite: ElementTree.Element, label: str, seconds: float) -> ElementTree.Element:
    package, _, _ = label.removeprefix("//").partition(":")
    classname = package.replace("/", ".") or "//"
    attributes = {"name": _xml(label), "classname": _xml(classname), "time": _seconds(seconds)}
    return ElementTree.SubElement(suite, "testcase", attributes)


def _told(failed: FailedAction) -> str:
    log = failed.log_tail(lines=_LOG_LINES, characters=_LOG_CHARACTERS)
    return "\n".join(filter(None, (f"{failed.title} {failed.words}: {failed.message}", log)))


def _account(target: TargetResult) -> str:
    """What a test measured, what ran and came from where, then each output with its digest."""
    counts = (
        (target.total.ran, "ran"),
        (target.up_to_date, "up to date"),
        (target.from_disk, "from disk"),
        (target.from_remote, "from remote"),
    )
    head = "actions: " + (", ".join(f"{count} {word}" for count, word in counts if count) or "none that ended")
    return "\n".join([*target.test, head, *(f"{entry.path} {entry.digest}" for entry in target.outputs)])


def _seconds(value: float) -> str:
    return f"{max(value, 0.0):.3f}"


def _xml(value: str) -> str:
    """`value` with what XML cannot have replaced."""
    return _NOT_XML.sub("�", value)
