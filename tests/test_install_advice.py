"""Whatever tells somebody to install something names what pyproject.toml has, and a command that works.

A wheel of mlcbuild is in no index. So `pip install "mlcbuild[cuda]"` adds an extra to what is installed already, and
nothing may install mlcbuild itself again.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from mlcbuild.doctor.distributions import EXTRAS
from mlcbuild.release.extra import DISTRIBUTIONS
from mlcbuild.toolchains.table import every
from mlcbuild.toolchains.toolchain import DistributionToolchain

PROJECT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
UNKNOWN = "{}"  # in a text, what is put in when it is printed
EXTRA = re.compile(r"mlcbuild\[([^\]]*)\]")
COMMAND = re.compile(r"pip (?:un)?install ((?:'[^']*'|\"[^\"]*\"|[^\s'\"`)(,;|&]+| )+)")
ABSENT = re.compile(r"not installed|is not found")
PLACES = ("mlcbuild", "cache", "rules", "website")  # `mlcbuild/cache` and `mlcbuild/rules` are links to two of these


def requirements(lines: list[str]) -> dict[str, SpecifierSet]:
    return {canonicalize_name(Requirement(line).name): Requirement(line).specifier for line in lines}


NEEDED = requirements(PYPROJECT["dependencies"])
OF_EXTRA = {name: requirements(lines) for name, lines in PYPROJECT["optional-dependencies"].items()}
ALL = NEEDED | {name: found for extra in OF_EXTRA.values() for name, found in extra.items()}


def sources() -> list[Path]:
    found = [path for place in PLACES for path in (PROJECT / place).rglob("*.py")]
    return sorted(path for path in found if not path.is_relative_to(PROJECT / "mlcbuild/cache"))


def pages() -> list[Path]:
    kits = (PROJECT / "mlcbuild/cli/init/ci_files").rglob("*")
    return [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md")), *(path for path in kits if path.is_file())]


def texts_of(node: ast.AST) -> Iterator[str]:
    """The texts of an expression, in which `{}` stands for what is put in."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(
            part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else UNKNOWN
            for part in node.values
        )
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from texts_of(child)


def told() -> list[tuple[str, str]]:
    """Each text of the code and of the pages that says how something is installed, and where it stands."""
    found = [(path, text) for path in sources() for text in texts_of(ast.parse(path.read_text(encoding="utf-8")))]
    found += [(path, line) for path in pages() for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        (path.relative_to(PROJECT).as_posix(), text)
        for path, text in found
        if EXTRA.search(text) or COMMAND.search(text)
    ]


def wrong(text: str) -> list[str]:
    """What is wrong with the extras and the commands of a text."""
    extras = [name.strip() for each in EXTRA.findall(text) for name in each.split(",")]
    problems = [f"no extra {name!r}" for name in extras if name not in OF_EXTRA and name != UNKNOWN]
    for command in COMMAND.findall(text):
        words = re.findall(r"'[^']*'|\"[^\"]*\"|\S+", command)
        given = [word.strip("'\"").rstrip(".:") for word in words]
        if "mlcbuild" in {each.partition("[")[0] for each in given} and "--force-reinstall" in given:
            problems.append("mlcbuild itself is in no index")
        if "--force-reinstall" in given and "--no-deps" not in given:
            problems.append("it would bring other releases of what the package depends on")
        names = iter(given)
        for each in names:
            if each in ("-r", "-e", "-c"):
                next(names)
            elif not each.startswith("-") and "/" not in each and each not in ("mlcbuild", "…"):
                problems += wrong_requirement(each)
    return problems


def wrong_requirement(given: str) -> list[str]:
    if given.startswith(UNKNOWN):
        return []
    name, _, version = given.partition("==")
    if name.startswith("mlcbuild["):
        return []
    specifier = ALL.get(canonicalize_name(name))
    if specifier is None:
        return [f"{name!r} is nothing that pyproject.toml names"]
    return [] if not version or version == UNKNOWN or specifier.contains(version) else [f"{given} is not {specifier}"]


def test_every_text_names_extras_and_distributions_of_pyproject() -> None:
    found = told()
    assert {path for path, _ in found} >= {
        "mlcbuild/toolchains/entries/triton.py",
        "mlcbuild/toolchains/entries/nvrtc.py",
        "cache/remote/keys.py",
        "mlcbuild/release/signing.py",
        "docs/getting-started.md",
        "README.md",
    }
    assert [(path, text, problems) for path, text in found if (problems := wrong(text))] == []


@pytest.mark.parametrize(
    "text",
    [
        'run: python -m pip install "mlcbuild[cuad]"',
        "the extra mlcbuild[s3,grcp]",
        "pip install 'nvidia-cuda-nvrtc==12.8.0'",
        "pip install cuda-python",
        'pip install --force-reinstall --no-deps "mlcbuild[cuda]"',
        "pip install --force-reinstall boto3",
    ],
)
def test_a_text_with_a_mistake_is_found(text: str) -> None:
    assert wrong(text)


def test_an_error_about_a_missing_package_names_the_extra_that_has_it() -> None:
    """In one call, as `LocalEnvironmentError("… boto3, which is not installed", advice=("… mlcbuild[s3]",))` is."""
    names = re.compile(rf"(?<![\w-])({'|'.join(sorted(map(re.escape, ALL), key=len, reverse=True))})(?![\w-])")
    checked = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            said = list(texts_of(node)) if isinstance(node, ast.Call) else []
            extras = {name for text in said for each in EXTRA.findall(text) for name in each.split(",")} & set(OF_EXTRA)
            missing = {name for text in said if ABSENT.search(text) for name in names.findall(EXTRA.sub("", text))}
            if extras and missing:
                checked.append(path.name)
                assert all(missing <= set(OF_EXTRA[extra]) for extra in extras), (path, missing, extras)
    assert {"client.py", "calls.py", "keys.py", "s3.py"} <= set(checked)


def test_a_toolchain_of_distributions_is_brought_by_what_its_advice_installs() -> None:
    toolchains = [each for each in every() if isinstance(each, DistributionToolchain)]
    assert {each.name for each in toolchains} >= {"tvm", "numpy", "nvrtc", "nvfatbin", "triton"}
    for toolchain in toolchains:
        (advice,) = toolchain.advice
        extras = EXTRA.findall(advice)
        brought = set(OF_EXTRA[extras[0]] if extras else NEEDED)
        assert extras or advice.endswith("pip install mlcbuild"), advice
        assert set(toolchain.distributions) <= brought, toolchain.name


def test_extras_that_the_doctor_looks_for_have_what_it_looks_for() -> None:
    for name, (_, extra, _) in EXTRAS.items():
        assert name in OF_EXTRA[extra]


def test_modules_of_releases_are_told_by_the_names_of_their_distributions() -> None:
    known = importlib.metadata.packages_distributions()
    assert set(DISTRIBUTIONS.values()) <= set(OF_EXTRA["release"])
    for module, distribution in DISTRIBUTIONS.items():
        assert distribution in {str(canonicalize_name(name)) for name in known[module]}
