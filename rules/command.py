"""`command`: run any declared program over declared inputs; what `genrule` is in Bazel."""

from __future__ import annotations

import re

from mlcbuild.engine.action import Artifact, CachePolicy, DiscoveredArtifacts, Input, SourceArtifact
from mlcbuild.rules.providers import ExecutableInfo, FilesInfo, ToolInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.label import Label, LabelError, read_label
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_PLACEHOLDER = re.compile(r"\{(inputs|outputs|input:[^{}]*|output:[^{}]*)\}")


def implement(context: RuleContext) -> Providers:
    target = context.target
    tool = context.required("tool", ToolInfo)
    laid_out: dict[str, Artifact] = {}
    paths_by_label: dict[Label, list[str]] = {}
    for label in target.labels("inputs"):
        paths = paths_by_label[label] = []
        for path, artifact in context.files(label).files:
            place = _place(label, path, artifact)
            other = laid_out.setdefault(place, artifact)
            if other is not artifact and other != artifact:
                raise context.error(f'two inputs would lie at "{place}"', attribute="inputs")
            if not isinstance(artifact, DiscoveredArtifacts):
                paths.append(place)
    program = tool.path
    if tool.executable is not None:
        program = f"tool/{tool.executable.path.rpartition('/')[2]}"
        laid_out[program] = tool.executable
    outputs = target.strings("outputs")
    for name in outputs:
        if name.startswith("/") or any(part in ("", ".", "..") for part in name.removesuffix("/").split("/")):
            raise context.error(f'output "{name}" is not a path below the output folder', attribute="outputs")
    arguments = [program, *tool.arguments]
    for argument in target.strings("arguments"):
        arguments += _expand(context, argument, paths_by_label, outputs)
    action = context.tool(
        target.optional_string("mnemonic") or "Command",
        arguments=arguments,
        inputs=[Input(path=path, artifact=artifact) for path, artifact in laid_out.items()],
        outputs=[f"out/{name}" for name in outputs],
        environment=target.string_map("environment"),
        toolchains=(f"program:{tool.path}",) if tool.path else (),
        cache=CachePolicy(target.string("cache")),
        requirements=requirements_of(target),
    )
    files = FilesInfo(files=tuple((name, action.output(f"out/{name}")) for name in sorted(outputs)))
    if len(outputs) == 1 and not outputs[0].endswith("/"):
        return (files, ExecutableInfo(program=outputs[0]))
    return (files,)


def _place(label: Label, path: str, artifact: Artifact) -> str:
    """Where an input lies in the action's directory: as in the workspace, a made file below its target's package."""
    if isinstance(artifact, SourceArtifact):
        return f"in/{artifact.path}"
    return "/".join(part for part in ("in", label.package, path) if part)


def _expand(context: RuleContext, argument: str, inputs: dict[Label, list[str]], outputs: tuple[str, ...]) -> list[str]:
    """Fill in placeholders. One that is the whole argument becomes as many arguments as it has paths."""

    def paths(word: str) -> list[str]:
        if word == "inputs":
            return sorted(path for found in inputs.values() for path in found)
        if word == "outputs":
            return [f"out/{name}" for name in outputs]
        kind, _, name = word.partition(":")
        if kind == "output":
            if name not in outputs:
                raise context.error(
                    f'no output "{name}"', attribute="arguments", advice=(f"known: {', '.join(outputs)}",)
                )
            return [f"out/{name}"]
        try:
            label = read_label(name, context.label.package)
        except LabelError as problem:
            raise context.error(
                f'bad label "{name}": {problem.message}', attribute="arguments", advice=problem.advice
            ) from None
        if label not in inputs:
            known = ", ".join(str(found) for found in inputs) or "none"
            raise context.error(f"{label} is no input", attribute="arguments", advice=(f"inputs: {known}",))
        return inputs[label]

    whole = _PLACEHOLDER.fullmatch(argument)
    if whole:
        return paths(whole[1])
    return [_PLACEHOLDER.sub(lambda found: " ".join(paths(found[1])), argument)]


COMMAND = Rule(
    schema=RuleSchema(
        name="command",
        doc="Runs a program over inputs, with no environment but the declared one, and keeps its outputs.",
        attributes=(
            Attribute(
                name="tool",
                kind=AttributeKind.LABEL,
                mandatory=True,
                provides=("tool",),
                doc="The program to run.",
            ),
            Attribute(
                name="inputs",
                kind=AttributeKind.LABEL_LIST,
                allow_files=True,
                doc="Files, folders and targets whose files the program reads. They lie below in/: files of the "
                "workspace by their path in it, made files in the folder of their target's package.",
            ),
            Attribute(
                name="outputs",
                kind=AttributeKind.STRING_LIST,
                mandatory=True,
                nonempty=True,
                doc="What the program must write, below out/. A directory ends in /.",
            ),
            Attribute(
                name="arguments",
                kind=AttributeKind.STRING_LIST,
                placeholders=("inputs", "outputs"),
                doc="The arguments. {inputs} and {outputs} stand for all paths, {input:LABEL} for those of one input, "
                "{output:NAME} for one output; alone in an argument, each path becomes an argument of its own.",
            ),
            Attribute(name="environment", kind=AttributeKind.STRING_MAP, doc="The program's environment variables."),
            Attribute(
                name="mnemonic",
                kind=AttributeKind.STRING,
                default="Command",
                doc="What progress and reports call the action.",
            ),
            REQUIREMENTS,
            Attribute(
                name="cache",
                kind=AttributeKind.CHOICE,
                allowed=tuple(policy.value for policy in CachePolicy),
                meant=(("remote", 'remote caches keep "all", which is the default, and "non-reproducible"'),),
                default=CachePolicy.ALL.value,
                doc='Which caches keep the result: "all", this machine\'s and remote ones; "non-reproducible", these '
                "too, for a program whose bytes differ from run to run, where each run is as good as another; "
                '"remade", these too, for large folders, whose files each machine that needs them makes again, as '
                'remote caches have their digests alone; "local", for what is true here only; "none", for a '
                "measurement, which every build repeats.",
            ),
        ),
        provides=("files", "executable"),
    ),
    implementation=implement,
)
