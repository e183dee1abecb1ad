"""What rules of other compilers provide, so that what they made can be run by its own runtime, and compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.engine.action import DerivedArtifact, JsonValue
from mlcbuild.rules.environments import EnvironmentInfo
from mlcbuild.rules.providers import FilesInfo, Provider


@dataclass(frozen=True, kw_only=True)
class CompiledModelInfo(Provider):
    """A compiled model, and how it is run.

    `runtime` is `package.module:load`, of a module that runs in `environment` as programs do. It has two functions:
    `prepare(threads)` imports the runtime; `load(artifact, inputs, outputs, threads, **options)` returns a function
    from arrays by the names of inputs to arrays by the names of outputs. `inputs` and `outputs` are the model's names,
    in its order. `distribution` names the runtime in the environment's lock.
    """

    name: ClassVar[str] = "compiled_model"
    noun: ClassVar[str] = "compiled model"

    compiler: str  # for people: ONNX Runtime
    distribution: str
    artifact: tuple[tuple[str, DerivedArtifact], ...]  # one file, or several that lie in one folder
    environment: EnvironmentInfo
    runtime: str
    options: tuple[tuple[str, JsonValue], ...] = ()

    @property
    def version(self) -> str:
        return dict(self.environment.versions).get(self.distribution, "")

    @property
    def files(self) -> FilesInfo:
        return FilesInfo(files=self.artifact)
