"""`python_environment`: a lock file → the wheels that it names → a folder that programs import from."""

from __future__ import annotations

from mlcbuild.engine.action import CachePolicy, DerivedArtifact, ExecutionRequirements, SourceArtifact
from mlcbuild.rules.environment_lock import LockedWheel, normalized, read_lock
from mlcbuild.rules.environments import EnvironmentInfo
from mlcbuild.rules.licenses import UnknownLicenseError, license_expression
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_REFERENCE = "LicenseRef-"


def implement(context: RuleContext) -> Providers:
    target = context.target
    _check_license(context)
    lock = context.files(target.label_of("lock")).files
    if len(lock) != 1 or not isinstance(lock[0][1], SourceArtifact):
        raise context.error("lock is not one file of the workspace", attribute="lock")
    path = lock[0][1].path
    content = context.read(lock[0][1], attribute="lock")
    wheels, errors = read_lock(content.decode("utf-8", "replace"), path)
    if errors:
        context.errors.extend(errors)
        return ()
    without = sorted({normalized(name) for name in target.strings("without")})
    for name in sorted({wheel.name for wheel in wheels}.intersection(without)):
        context.report(f"{name} is in the lock, and in without", attribute="without")
    unpacked = context.stage(
        "UnpackEnvironment",
        "mlcbuild.compiler.stages.unpack_environment:run",
        inputs={"wheels": [_fetch(context, wheel) for wheel in wheels]},
        outputs={"environment": "environment/", "contents": "environment.json"},
        parameters={
            "locked": {wheel.name: wheel.version for wheel in wheels},
            "accepted": sorted(target.strings("accept_license")),
            "without": without,
        },
        toolchains=("python",),
        cache=CachePolicy.REMADE,
    )
    return (
        FilesInfo(files=(("environment.json", unpacked.output("out/environment.json")),)),
        EnvironmentInfo(
            folder=unpacked.output("out/environment/"),
            versions=tuple((wheel.name, wheel.version) for wheel in wheels),
        ),
    )


def _fetch(context: RuleContext, wheel: LockedWheel) -> DerivedArtifact:
    """A wheel is a pinned file, as those of `http_file` and its like are."""
    hints = (("package", wheel.name), ("version", wheel.version))
    action = context.stage(
        "Fetch",
        "mlcbuild.execution.fetch.wheel:run",
        outputs={"file": wheel.file_name},
        parameters={"sha256": wheel.sha256, "name": wheel.file_name},
        requirements=ExecutionRequirements(network=True, execution_hints=hints),
        pinned_content=wheel.sha256,
        part=wheel.name,
    )
    return action.output(action.outputs[0])


def _check_license(context: RuleContext) -> None:
    """Report an expression that is none, and licences that SPDX does not list and nobody has accepted."""
    target = context.target
    try:
        expression = license_expression(target.string("license"))
    except UnknownLicenseError as error:
        context.report(str(error), attribute="license", advice=error.advice)
        return
    named = {word for word in expression.replace("(", " ").replace(")", " ").split() if word.startswith(_REFERENCE)}
    accepted = target.strings("accept_license")
    for reference in sorted(named.difference(accepted)):
        context.report(
            f"{reference}, a licence that SPDX does not list, is not accepted",
            attribute="license",
            advice=(f'read it, and write accept_license = ["{reference}"] if you may use it',),
        )
    for reference in accepted:
        if not reference.startswith(_REFERENCE):
            context.report(
                f'"{reference}" need not be accepted',
                attribute="accept_license",
                advice=(f"only licences that SPDX does not list do: {_REFERENCE}NAME",),
            )


PYTHON_ENVIRONMENT = Rule(
    schema=RuleSchema(
        name="python_environment",
        doc="Python packages in a folder of their own, for compilers that are not installed beside mlcbuild: made of "
        "pinned wheels, which pip downloads from the index that it is set to. Several versions of one package can be "
        "in one workspace.",
        attributes=(
            Attribute(
                name="lock",
                kind=AttributeKind.LABEL,
                allow_files=True,
                mandatory=True,
                doc="A file of pip's requirements, with the version and one hash of each package: "
                "NAME==VERSION --hash=sha256:DIGEST.",
            ),
            Attribute(
                name="license",
                kind=AttributeKind.STRING,
                mandatory=True,
                nonempty=True,
                doc="The licence of the packages together, as an SPDX expression.",
            ),
            Attribute(
                name="accept_license",
                kind=AttributeKind.STRING_LIST,
                doc="Licences that SPDX does not list, as proprietary ones, and that you accept: LicenseRef-NAME.",
            ),
            Attribute(
                name="without",
                kind=AttributeKind.STRING_LIST,
                doc="Packages that may be missing although others of the lock need them, because nothing that is run "
                "imports them.",
            ),
        ),
        provides=("files", "environment"),
    ),
    implementation=implement,
)
