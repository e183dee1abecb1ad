"""A workspace with a test rule of its own, whose tests end as their text says, in no time."""

from __future__ import annotations

from pathlib import Path

_RULES = """\
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.tested import TEST_ATTRIBUTES, declare_test
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    text = context.files(context.target.label_of("text"))
    return declare_test(
        context,
        "Check",
        "checks.stages.check:run",
        inputs={"text": text},
        parameters={"at_most": context.target.integer("at_most")},
        builds=[artifact for _, artifact in text.files],
    )


CHECK_TEST = Rule(
    schema=RuleSchema(
        name="check_test",
        doc="Whether a text is short, or whatever else it says.",
        attributes=(
            Attribute(name="text", kind=AttributeKind.LABEL, mandatory=True, allow_files=True, doc="The text."),
            Attribute(name="at_most", kind=AttributeKind.INTEGER, default=10, doc="Its characters."),
            *TEST_ATTRIBUTES,
        ),
        provides=("test",),
    ),
    implementation=implement,
)
"""
_STAGE = """\
import os
import signal
import time
from pathlib import Path

from mlcbuild.runtime.test_result import TestResult


def run(*, text: Path, result: Path, at_most: int) -> None:
    said = text.read_text().strip()
    print(f"the text is: {said}", flush=True)
    if said == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if said == "hang":
        time.sleep(600)
    if said == "bug":
        raise ValueError("not what it expects")
    TestResult(
        test="check_test",
        passed=len(said) <= at_most,
        summary=f"{len(said)} characters, at most {at_most}",
        figures={"characters": len(said)},
        advice=("write less",),
    ).report(result)
"""


def add_checks(root: Path) -> None:
    """Add the rule to a workspace, and a test that passes and one that fails in the package checks."""
    build_file = root / "BUILD.toml"
    text = build_file.read_text()
    assert 'rules = ["' in text
    build_file.write_text(text.replace('rules = ["', 'rules = ["//checks:rules.py", "', 1))
    write_check_rule(root)
    (root / "checks/short.txt").write_text("short\n")
    (root / "checks/long.txt").write_text("longer than it may be\n")
    (root / "checks/BUILD.toml").write_text(check("short") + check("long"))


def write_check_rule(root: Path) -> None:
    """The rule alone, in the package checks."""
    (root / "checks/stages").mkdir(parents=True)
    (root / "checks/rules.py").write_text(_RULES)
    (root / "checks/stages/check.py").write_text(_STAGE)


def check(name: str, text: str = "", more: str = "") -> str:
    """A target of the rule, whose text is the file NAME.txt unless there is another label."""
    return f'\n[[check_test]]\nname = "{name}"\ntext = "{text or name + ".txt"}"\n{more}'
