"""A workspace's own rule files come through the door of the built-in ones."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules.registry import BUILT_IN, load_rules, rules_in
from tests.rules.world import action, analysed, write

OWN_RULE = """
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    made = context.tool(
        "Greet",
        arguments=("/bin/sh", "-c", f"echo {context.target.string('who')} > out/hello"),
        inputs=(),
        outputs=("out/hello",),
        environment={},
        toolchains=("program:/bin/sh",),
    )
    return (FilesInfo(files=(("hello", made.output("out/hello")),)),)


GREETING = Rule(
    schema=RuleSchema(
        name="greeting",
        doc="A greeting.",
        attributes=(Attribute(name="who", kind=AttributeKind.STRING, mandatory=True, doc="Whom to greet."),),
        provides=("files",),
    ),
    implementation=implement,
)
"""


def test_a_rule_file_of_the_workspace_is_loaded_by_its_label(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "BUILD.toml": '[workspace]\nname = "t"\nrules = ["//build:greeting.py"]\n',
            "build/BUILD.toml": "",
            "build/greeting.py": OWN_RULE,
            "a/BUILD.toml": '[[greeting]]\nname = "g"\nwho = "you"\n',
        },
    )
    assert action(analysed(root, "//a:g"), "Greet").identifier == "//a:g Greet"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def broken(:\n", "build/own.py:1:12: rule file build/own.py is not valid Python: invalid syntax"),
        (
            "\nraise RuntimeError('no')\n",
            "build/own.py:2: rule file build/own.py failed as it was loaded: RuntimeError: no",
        ),
        (
            OWN_RULE.replace("mandatory=True", "required=True").replace(
                "GREETING =",
                'SHARED = Attribute(name="x", kind=AttributeKind.STRING, doc="Of several rules.")\nGREETING =',
            ),
            "unexpected keyword argument 'required'\n  Attribute takes: name, kind, doc, mandatory, default, ",
        ),
        (
            OWN_RULE.replace("AttributeKind.STRING", "AttributeKind.STR"),
            "AttributeError: STR\n  AttributeKind has: STRING, INTEGER, ",
        ),
        ("x = 1\n", "rule file build/own.py defines no rule"),
        ("# coding: no\n", "build/own.py: rule file build/own.py is not valid Python: unknown encoding: no"),
        ("x = " + "(" * 5000, "build/own.py:1:205: rule file build/own.py is not valid Python: too many nested"),
        (OWN_RULE.replace('"greeting"', '"model"'), 'rule file build/own.py defines "model", which is a rule already'),
    ],
)
def test_a_bad_rule_file_is_an_error_with_its_place(tmp_path: Path, content: str, message: str) -> None:
    root = write(
        tmp_path,
        {
            "BUILD.toml": '[workspace]\nname = "t"\nrules = ["//build:own.py"]\n',
            "build/BUILD.toml": "",
            "build/own.py": content,
        },
    )
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(root, "//...")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        (
            'made.output("out/hello")',
            'made.output("hello")',
            'build/own.py:16: the rule "greeting" failed for //a:g: '
            "ValueError: //a:g Greet has no output 'hello'; it has out/hello",
        ),
        (
            "context.target.string('who')",
            "context.target.sting('who')",
            'build/own.py:10: the rule "greeting" failed for //a:g: '
            "AttributeError: 'Target' object has no attribute 'sting'"
            "\n  Target has: location_of, origin_of, get, declares, has, string, ",
        ),
        ("context.target.string('who')", "context.target.strin('who')", 'did you mean "string"?'),
        (
            "context.target.string('who')",
            "context.target.string('whom')",
            "KeyError: 'greeting declares no attribute whom: it has who'",
        ),
        (
            "environment={}",
            "environments={}",
            "RuleContext.tool takes: mnemonic, arguments, inputs, outputs, environment, toolchains, cache, "
            'requirements        did you mean "environment"?',
        ),
        (
            "    return (FilesInfo(",
            "    context.tool('Greet', arguments=('/bin/true',), inputs=(), outputs=('out/x',), environment={})\n"
            "    return (FilesInfo(",
            'build/own.py:16: the rule "greeting" failed for //a:g: '
            "ValueError: two different actions are called //a:g Greet: give each a mnemonic of its own",
        ),
        (
            "    return (FilesInfo(",
            "    (FilesInfo(",
            'a/BUILD.toml:1:1: the rule "greeting" answers None for //a:g, which is no tuple of providers',
        ),
    ],
)
def test_a_mistake_in_a_workspaces_rule_is_told_as_that_with_its_place(
    tmp_path: Path, written: str, instead: str, message: str
) -> None:
    assert written in OWN_RULE
    root = write(
        tmp_path,
        {
            "BUILD.toml": '[workspace]\nname = "t"\nrules = ["//build:own.py"]\n',
            "build/BUILD.toml": "",
            "build/own.py": OWN_RULE.replace(written, instead),
            "a/BUILD.toml": '[[greeting]]\nname = "g"\nwho = "you"\n\n[[greeting]]\nname = "h"\nwho = "me"\n',
        },
    )
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(root, "//...")
    assert message in str(raised.value)
    assert len(raised.value.errors) == 2  # Both targets' mistakes are told together.


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_rule_has_the_name_of_its_module(name: str) -> None:
    (rule,) = rules_in(importlib.import_module(f"mlcbuild.rules.{name}"))
    assert rule.schema.name == name
    assert load_rules(Path(), ())[name] is rule


def test_only_rules_that_a_workspace_uses_are_imported(tmp_path: Path) -> None:
    write(tmp_path, {"BUILD.toml": '[workspace]\nname = "t"\n[[filegroup]]\nname = "f"\nsrcs = ["BUILD.toml"]\n'})
    code = (
        "import sys; from mlcbuild.cli.main import main; code = main(['query', '//...']); "
        "sys.exit(code or sorted(name for name in sys.modules if name.startswith('mlcbuild.rules.model')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr.strip()) == ("//:f\n", "[]")
