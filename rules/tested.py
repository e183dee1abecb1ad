"""What the test rules share: their attributes, and the action that is the test.

They are Bazel's where Bazel has them: sizes and their time limits
(https://bazel.build/reference/test-encyclopedia), and tags (https://bazel.build/reference/be/common-definitions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from mlcbuild.engine.action import MORE_CPUS_THAN_ANY, Artifact, CachePolicy, ExecutionRequirements, JsonValue
from mlcbuild.rules.providers import FilesInfo, PackageInfo, TestInfo
from mlcbuild.rules.rule import Providers, RuleContext, StageInput
from mlcbuild.workspace.schema import Attribute, AttributeKind

RESULT = "test.json"
EXTERNAL, NO_CACHE, LOCAL, NO_REMOTE, EXCLUSIVE = "external", "no-cache", "local", "no-remote", "exclusive"
_SECONDS = {"small": 60, "medium": 300, "large": 900, "enormous": 3600}
SIZES = tuple(_SECONDS)

PACKAGE = Attribute(
    name="package",
    kind=AttributeKind.LABEL,
    mandatory=True,
    provides=(PackageInfo.name,),
    doc="The model_package to test. It runs on the device that it was built for.",
)
TEST_ATTRIBUTES = (
    Attribute(
        name="size",
        kind=AttributeKind.CHOICE,
        allowed=SIZES,
        default="medium",
        doc="How much work the test is, for `--test-size-filters`, and how long it may take: small 1 minute, medium 5, "
        "large 15, enormous 60.",
    ),
    Attribute(name="timeout", kind=AttributeKind.DURATION, doc="How long it may take, instead of what `size` says."),
    Attribute(
        name="cpus",
        kind=AttributeKind.INTEGER,
        minimum=1,
        default=1,
        doc="How many processors it keeps busy. Results do not depend on it.",
    ),
    Attribute(
        name="memory",
        kind=AttributeKind.SIZE,
        doc="The most memory that it may hold: stopped and run again with more where it holds more.",
    ),
)
TAGS = (
    ' Tags as in Bazel: "external" and "no-cache" run it in every `mlcbuild test`, "local" and "no-remote" keep its '
    'result on this machine, "exclusive" runs it alone.'
)


def cache_policy(context: RuleContext, *, default: CachePolicy = CachePolicy.ALL) -> CachePolicy:
    """What the tags of a test say of its result."""
    tags = context.target.tags
    if EXTERNAL in tags or NO_CACHE in tags:
        return CachePolicy.NONE
    return CachePolicy.LOCAL if LOCAL in tags or NO_REMOTE in tags else default


def limits(context: RuleContext) -> ExecutionRequirements:
    """What TEST_ATTRIBUTES and the tags say of what a test takes."""
    return ExecutionRequirements(
        cpus=MORE_CPUS_THAN_ANY if EXCLUSIVE in context.target.tags else context.target.integer("cpus"),
        memory_bytes=context.target.optional_integer("memory") or 0,
        timeout_seconds=float(
            cast("float | None", context.target.get("timeout")) or _SECONDS[context.target.string("size")]
        ),
    )


def run_requirements(
    context: RuleContext, package: str = PACKAGE.name, *, alone: bool = False
) -> ExecutionRequirements:
    """The same to run the package that an attribute names; with `alone`, beside no other action."""
    said = limits(context)
    return replace(
        context.required(package, PackageInfo).platform.run_requirements,
        cpus=MORE_CPUS_THAN_ANY if alone else said.cpus,
        memory_bytes=said.memory_bytes,
        timeout_seconds=said.timeout_seconds,
        execution_hints=(("threads", context.target.integer("cpus")),),
    )


def declare_test(
    context: RuleContext,
    mnemonic: str,
    function: str,
    *,
    inputs: Mapping[str, StageInput],
    parameters: Mapping[str, JsonValue],
    builds: Sequence[Artifact],
    requirements: ExecutionRequirements | None = None,
    toolchains: Sequence[str] = (),
    cache: CachePolicy | None = None,
) -> Providers:
    """Declare the action of a test: a stage that writes `result`, a `runtime.test_result.TestResult`, and raises
    StageError where the test fails. `builds` is what a build of the target makes. The schema has TEST_ATTRIBUTES."""
    action = context.stage(
        mnemonic,
        function,
        inputs=inputs,
        outputs={"result": RESULT},
        parameters=parameters,
        toolchains=toolchains,
        requirements=requirements or limits(context),
        cache=cache or cache_policy(context),
        is_test=True,
    )
    files = FilesInfo(files=((RESULT, action.output(f"out/{RESULT}")),))
    size = context.target.string("size")
    return (TestInfo(action=action.identifier, files=files, builds=tuple(builds), size=size),)


def declare_package_test(
    context: RuleContext,
    mnemonic: str,
    function: str,
    *,
    inputs: Mapping[str, StageInput],
    parameters: Mapping[str, JsonValue],
    requirements: ExecutionRequirements | None = None,
    cache: CachePolicy | None = None,
    packages: Sequence[str] = (PACKAGE.name,),
) -> Providers:
    """The same of a stage that is given `package`. `packages` are the attributes that name what a build makes."""
    labels = [context.target.label_of(attribute) for attribute in packages]
    return declare_test(
        context,
        mnemonic,
        function,
        inputs={"package": context.files(context.target.label_of(PACKAGE.name)), **inputs},
        parameters=parameters,
        builds=[artifact for label in labels for _, artifact in context.files(label).files],
        requirements=requirements or run_requirements(context),
        toolchains=("tvm",),
        cache=cache,
    )
