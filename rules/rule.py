"""What a rule is, and what its implementation is given.

::

    UPPER = Rule(
        schema=RuleSchema(name="upper", doc="…", attributes=(Attribute(name="source", …),)),
        implementation=implement,
    )

    def implement(context: RuleContext) -> Providers:
        action = context.tool("Upper", arguments=("/usr/bin/tr", …), …)
        return (FilesInfo(files=(("upper.txt", action.output("out/upper.txt")),)),)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mlcbuild.engine.action import (
    Action,
    Artifact,
    CachePolicy,
    DerivedArtifact,
    DiscoveredArtifacts,
    Discoverer,
    ExecutionRequirements,
    Input,
    JsonValue,
    SourceArtifact,
    StageCall,
    ToolCall,
)
from mlcbuild.errors import StageError, WorkspaceError
from mlcbuild.rules.providers import FilesInfo, Provider
from mlcbuild.suggestions import missing_module
from mlcbuild.tuning.choice import Choice
from mlcbuild.workspace.configuration import Configuration
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.schema import RuleSchema
from mlcbuild.workspace.target import Target

Providers = tuple[Provider, ...]
AnyProvider = TypeVar("AnyProvider", bound=Provider)
StageInput = Artifact | FilesInfo
_NAMED_OBJECT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A schema that targets keep to, and the function from such a target to actions and providers."""

    schema: RuleSchema
    implementation: Callable[[RuleContext], Providers]


@dataclass(frozen=True, kw_only=True)
class Incompatibility:
    """Why a target cannot be built for its platform. `error` tells it to somebody who named the target."""

    reason: str
    error: WorkspaceError


class RuleContext:
    """One target under analysis: its attributes, what its dependencies provide, and the actions it declares."""

    def __init__(
        self,
        *,
        target: Target,
        configuration: Configuration,
        dependencies: Mapping[Label, Providers],
        source_files: Callable[[Label], FilesInfo],
        read_source: Callable[[str], bytes],
        list_folder: Callable[[str], Sequence[str]],
        find_program: Callable[[str], str],
        choices: Callable[[str], Mapping[str, Choice]],
    ) -> None:
        self.target = target
        self.configuration = configuration
        self.actions: list[Action] = []
        self.errors: list[WorkspaceError] = []
        self.illegal: list[Incompatibility] = []
        self._dependencies = dependencies
        self._source_files = source_files
        self._read_source = read_source
        self._list_folder = list_folder
        self._find_program = find_program
        self._choices = choices

    @property
    def label(self) -> Label:
        return self.target.label

    def error(
        self, message: str | StageError, *, attribute: str = "name", advice: tuple[str, ...] = ()
    ) -> WorkspaceError:
        """A mistake in this target, at the place of one of its attributes. What a stage would say of it, with advice,
        stands behind the target's label as it is.
        """
        told, hints = f"{message} in {self.label}", advice
        if isinstance(message, StageError):
            told, hints = f"{self.label}: {message.message}", (*message.advice, *advice)
        return WorkspaceError(told, location=self.target.location_of(attribute), advice=hints)

    def report(self, message: str | StageError, *, attribute: str = "name", advice: tuple[str, ...] = ()) -> None:
        """Tell of a mistake as `error` has it, and go on: others of the same target are told with it."""
        self.errors.append(self.error(message, attribute=attribute, advice=advice))

    def report_illegal(self, reason: str | StageError, *, attribute: str, advice: tuple[str, ...] = ()) -> None:
        """Tell that the target combines what does not go together, by `rules/legality.py`. A cell of a matrix is then
        left out where wildcards match it; for any other target it is a mistake."""
        told = reason.message if isinstance(reason, StageError) else reason
        self.illegal.append(Incompatibility(reason=told, error=self.error(reason, attribute=attribute, advice=advice)))

    def provided(self, label: Label, kind: type[AnyProvider]) -> AnyProvider | None:
        """What a dependency provides of a kind, or None."""
        for provider in self._dependencies.get(label, ()):
            if isinstance(provider, kind):
                return provider
        return None

    def required(self, attribute: str, kind: type[AnyProvider]) -> AnyProvider:
        """What the target that a label attribute names provides. Raises WorkspaceError where it is another kind."""
        label = self.target.label_of(attribute)
        found = self.provided(label, kind)
        if found is None:
            raise self.error(f"{attribute} {label} is no {kind.noun}", attribute=attribute)
        return found

    def files(self, label: Label) -> FilesInfo:
        """The files of a dependency: what a target provides, or the workspace's own file or folder of that name."""
        if label in self._dependencies:
            return self.provided(label, FilesInfo) or FilesInfo()
        return self._source_files(label)

    def read(self, artifact: SourceArtifact, *, attribute: str) -> bytes:
        """The content of a file of the workspace, for what can be checked before anything runs. Raises WorkspaceError,
        at the place of the attribute that names the file, where it cannot be read."""
        try:
            return self._read_source(artifact.path)
        except OSError as error:
            raise self.error(f"{artifact.path} cannot be read: {error.strerror}", attribute=attribute) from error

    def program(self, name: str) -> str:
        """The file of a program of the system (`system_programs`); "" where there is none."""
        return self._find_program(name)

    def choices(self, platform: str) -> Mapping[str, Choice]:
        """What records of measurements choose for the kernels of a platform (`tuning.record.platform_key`)."""
        return self._choices(platform)

    def check_module(self, module: str, *, attribute: str) -> None:
        """Raise WorkspaceError, at the place of the attribute, if the workspace has no module of that name: its path
        from the root, with dots.
        """
        self.module_source(module, attribute=attribute)

    def module_source(self, module: str, *, attribute: str) -> bytes:
        """The text of a module of the workspace. Raises as `check_module` does."""
        path = module.replace(".", "/")
        for file in (f"{path}.py", f"{path}/__init__.py"):
            with contextlib.suppress(OSError):
                return self._read_source(file)
        message, advice = missing_module(module, self._list_folder(path.rpartition("/")[0]))
        raise self.error(message, attribute=attribute, advice=advice)

    def stage(
        self,
        mnemonic: str,
        function: str,
        *,
        inputs: Mapping[str, StageInput | Sequence[StageInput]] | None = None,
        outputs: Mapping[str, str],
        parameters: Mapping[str, JsonValue] | None = None,
        plugins: Mapping[str, str | Sequence[str]] | None = None,
        toolchains: Sequence[str] = (),
        manifest: str = "",
        discoverer: Discoverer | None = None,
        requirements: ExecutionRequirements | None = None,
        cache: CachePolicy = CachePolicy.ALL,
        pinned_content: str = "",
        is_test: bool = False,
        part: str = "",
    ) -> Action:
        """Declare a stage: see `stage_action`. Its identifier is the target's label and the mnemonic, and the word
        `part` where the target takes the same stage for another purpose as well.

        `function` is `package.module:name`, for a stage of the workspace's own by the module's path from the root:
        `run` of `text/stages/count.py` is `text.stages.count:run`; plug-ins are named alike. Raises WorkspaceError
        for what has another form.
        """
        if not is_named_object(function):
            raise self.error(
                f'"{function}" is no stage function of {mnemonic}',
                advice=("write package.module:function; run of text/stages/count.py is text.stages.count:run",),
            )
        for name in (one for value in (plugins or {}).values() for one in _names(value)):
            if not is_named_object(name):
                raise self.error(
                    f'"{name}" is no plug-in of {mnemonic}',
                    advice=("write package.module:name; PASS of text/passes/fuse.py is text.passes.fuse:PASS",),
                )
        action = stage_action(
            f"{self.label} {mnemonic} {part}".rstrip(),
            mnemonic,
            function,
            owner=str(self.label),
            inputs=inputs or {},
            outputs=outputs,
            parameters=parameters or {},
            plugins=plugins or {},
            toolchains=toolchains,
            manifest=manifest,
            discoverer=discoverer,
            requirements=requirements,
            cache=cache,
            pinned_content=pinned_content,
            is_test=is_test,
        )
        return self._declared(action)

    def tool(
        self,
        mnemonic: str,
        *,
        arguments: Sequence[str],
        inputs: Sequence[Input],
        outputs: Sequence[str],
        environment: Mapping[str, str],
        toolchains: Sequence[str] = (),
        cache: CachePolicy = CachePolicy.ALL,
        requirements: ExecutionRequirements | None = None,
    ) -> Action:
        """Declare the run of a program, with the configuration's environment below the declared one."""
        action = Action(
            identifier=f"{self.label} {mnemonic}",
            mnemonic=mnemonic,
            owner=str(self.label),
            inputs=tuple(sorted(inputs, key=lambda item: item.path)),
            outputs=tuple(sorted(outputs)),
            command=ToolCall(arguments=tuple(arguments)),
            environment=tuple(sorted({**self.configuration.environment, **environment}.items())),
            toolchains=tuple(sorted(toolchains)),
            cache=cache,
            requirements=requirements or ExecutionRequirements(),
        )
        return self._declared(action)

    def _declared(self, action: Action) -> Action:
        if any(other.identifier == action.identifier and other != action for other in self.actions):
            raise ValueError(f"two different actions are called {action.identifier}: give each a mnemonic of its own")
        self.actions.append(action)
        return action


def stage_action(
    identifier: str,
    mnemonic: str,
    function: str,
    *,
    owner: str,
    inputs: Mapping[str, StageInput | Sequence[StageInput]],
    outputs: Mapping[str, str],
    parameters: Mapping[str, JsonValue],
    plugins: Mapping[str, str | Sequence[str]] | None = None,
    toolchains: Sequence[str] = (),
    manifest: str = "",
    discoverer: Discoverer | None = None,
    requirements: ExecutionRequirements | None = None,
    cache: CachePolicy = CachePolicy.ALL,
    pinned_content: str = "",
    is_test: bool = False,
) -> Action:
    """An action that calls a stage.

    Where inputs lie is derived from the stage's argument names alone, never from labels, so that equal stages of
    two targets have one key: a file at `in/<argument>/<base name>`, a directory or a `FilesInfo` of several files
    below `in/<argument>/`, a sequence's members and a discovered group side by side in `in/<argument>/`. `outputs`
    maps arguments to base names, which lie in `out/`. `plugins` maps arguments to objects of other modules
    (`engine.action.StageCall`); the order of several does not matter, and they arrive sorted by name. `manifest` is
    the argument whose output announces actions.
    """
    laid_out: list[Input] = []
    paths: list[tuple[str, str | tuple[str, ...]]] = []
    groups: list[tuple[str, str]] = []
    for argument, given in sorted(inputs.items()):
        folder = f"in/{argument}/"
        if isinstance(given, DiscoveredArtifacts):
            laid_out.append(Input(path=folder, artifact=given))
            groups.append((argument, folder))
        elif isinstance(given, FilesInfo):
            members = tuple(Input(path=folder + path, artifact=artifact) for path, artifact in given.files)
            laid_out += members
            paths.append((argument, members[0].path if given.is_single_file else folder))
        elif isinstance(given, SourceArtifact | DerivedArtifact):
            path = folder if given.path.endswith("/") else folder + base_name(given)
            laid_out.append(Input(path=path, artifact=given))
            paths.append((argument, path))
        else:
            members = tuple(Input(path=folder + base_name(item), artifact=item) for item in _artifacts(given))
            laid_out += members
            paths.append((argument, tuple(sorted(member.path for member in members))))
    requirements = requirements or ExecutionRequirements()
    return Action(
        identifier=identifier,
        mnemonic=mnemonic,
        owner=owner,
        inputs=tuple(sorted(laid_out, key=lambda item: item.path)),
        outputs=tuple(sorted(f"out/{path}" for path in outputs.values())),
        command=StageCall(
            function=function,
            inputs=tuple(paths),
            groups=tuple(groups),
            outputs=tuple((argument, f"out/{path}") for argument, path in sorted(outputs.items())),
            parameters=tuple(sorted(parameters.items())),
            plugins=tuple(
                (argument, value if isinstance(value, str) else tuple(sorted(set(value))))
                for argument, value in sorted((plugins or {}).items())
            ),
        ),
        toolchains=tuple(sorted(toolchains)),
        requirements=requirements,
        cache=cache,
        manifest=f"out/{outputs[manifest]}" if manifest else "",
        discoverer=discoverer,
        pinned_content=pinned_content,
        is_test=is_test,
    )


def is_named_object(name: str) -> bool:
    """Whether a name has the form `package.module:name`."""
    return _NAMED_OBJECT.fullmatch(name) is not None and ".py:" not in name


def _names(value: str | Sequence[str]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value


def base_name(artifact: SourceArtifact | DerivedArtifact) -> str:
    """The last segment of a file's or directory's path."""
    return artifact.path.removesuffix("/").rpartition("/")[2]


def _artifacts(given: Sequence[StageInput]) -> list[SourceArtifact | DerivedArtifact]:
    found: list[SourceArtifact | DerivedArtifact] = []
    for item in given:
        for artifact in (file for _, file in item.files) if isinstance(item, FilesInfo) else (item,):
            if isinstance(artifact, DiscoveredArtifacts):
                raise ValueError(f"a discovered group is an argument of its own: {artifact}")
            found.append(artifact)
    return found
