"""`mojo_binary`: a Mojo file as a program, a shared library or an object file, for any processor that Mojo knows."""

from __future__ import annotations

from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.processors import processor_error, triple_error
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

# Form → Mojo's word for it, and how the file's name ends.
_FORMS = {"program": ("exe", ""), "library": ("shared-lib", ".so"), "object": ("object", ".o")}


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "mojo-compiler")
    source = context.files(target.label_of("source"))
    if not source.is_single_file or not source.files[0][0].endswith(".mojo"):
        raise context.error("source is not one file that ends in .mojo", attribute="source")
    host, cpu = target.string("host"), target.string("cpu")
    if (wrong := triple_error(host)) is not None:
        raise context.error(wrong[0], attribute="host", advice=wrong[1])
    if (wrong := processor_error(host, cpu)) is not None:
        raise context.error(wrong[0], attribute="cpu", advice=wrong[1])
    form, ending = _FORMS[target.string("form")]
    name = f"{target.label.name}{ending}"
    built = environment_stage(
        context,
        "BuildMojo",
        "mlcbuild.compiler.environments.programs.build_mojo:run",
        environment=environment,
        inputs={"source": source},
        outputs={"made": name},
        parameters={
            "form": form,
            "host": host,
            "processor": cpu,
            "accelerator": target.optional_string("accelerator") or "",
            "optimization": int(target.string("optimization")),
        },
        toolchains=("gxx",),
        requirements=requirements_of(target),
    )
    return (FilesInfo(files=((name, built.output(f"out/{name}")),)),)


MOJO_BINARY = Rule(
    schema=RuleSchema(
        name="mojo_binary",
        doc="A Mojo file, compiled. Mojo links with the system's C compiler. It is proprietary: the environment must "
        "accept its licence.",
        attributes=(
            Attribute(
                name="source",
                kind=AttributeKind.LABEL,
                allow_files=True,
                mandatory=True,
                doc="The Mojo file; with a function main for a program.",
            ),
            ENVIRONMENT,
            Attribute(
                name="form",
                kind=AttributeKind.CHOICE,
                allowed=tuple(_FORMS),
                default="program",
                doc="What is made of it.",
            ),
            Attribute(
                name="cpu",
                kind=AttributeKind.STRING,
                mandatory=True,
                nonempty=True,
                doc="The processor, as LLVM names it: x86-64-v3, znver4, neoverse-n1.",
            ),
            Attribute(
                name="host",
                kind=AttributeKind.STRING,
                default="x86_64-linux-gnu",
                doc="The triple of a processor: architecture, system, environment.",
            ),
            Attribute(
                name="accelerator",
                kind=AttributeKind.STRING,
                nonempty=True,
                doc="The GPU that kernels in it are for, as Mojo names it: sm_90, gfx942.",
            ),
            Attribute(
                name="optimization",
                kind=AttributeKind.CHOICE,
                allowed=("0", "1", "2", "3"),
                default="3",
                doc="Mojo's level of optimization.",
            ),
            REQUIREMENTS,
        ),
        provides=("files",),
    ),
    implementation=implement,
)
