"""A workspace's own passes: what a target that is one provides, and how a library's phases are given them and its
kernels in Triton."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.compiler.phases.places import OF_KERNELS, PLACES
from mlcbuild.engine.action import JsonValue
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.providers import Provider
from mlcbuild.rules.rule import is_named_object
from mlcbuild.rules.triton_kernels import TritonKernelInfo
from mlcbuild.suggestions import known_values


@dataclass(frozen=True, kw_only=True)
class CompilerPassInfo(Provider):
    """A pass of the workspace's own, which runs right before or right after a pass of the pipeline.

    `function` is `package.module:name`. It is called with the module and the context of its phase
    (`mlcbuild.compiler.phases.pipeline.PhaseContext`), and returns a module. Raises ValueError for a function of
    another form, and unless exactly one of `after` and `before` names a place.
    """

    name: ClassVar[str] = "compiler_pass"
    noun: ClassVar[str] = "compiler_pass"

    function: str
    after: str = ""
    before: str = ""

    def __post_init__(self) -> None:
        if not is_named_object(self.function):
            raise ValueError(f'"{self.function}" is no function: write package.module:name')
        if bool(self.after) == bool(self.before):
            raise ValueError("a pass runs either after or before another: name one")
        if (problem := place_problem(self.after or self.before)) is not None:
            raise ValueError(" ".join([problem[0], *problem[1]]))

    @property
    def phase(self) -> str:
        """The phase that it runs in, such as `phase1`."""
        return PLACES[self.after or self.before]


def place_problem(place: str) -> tuple[str, tuple[str, ...]] | None:
    """What is wrong with the name of a place, with advice; None for a good one."""
    if place in PLACES:
        return None
    if place in OF_KERNELS:
        return f'no pass can run at "{place}"', ("kernels are scheduled there, each in an action of its own",)
    return f'unknown pass "{place}"', (known_values(place, PLACES),)


@dataclass(frozen=True, kw_only=True)
class PhasePasses:
    """What the stages of a library's phases are given besides their files: its backend's passes and the workspace's."""

    platform: PlatformInfo
    added: Sequence[CompilerPassInfo]
    triton_kernels: Sequence[TritonKernelInfo] = ()

    def plugins(self, phase: str) -> Mapping[str, str | Sequence[str]]:
        added = [one.function for one in self.added if one.phase == phase]
        return {**self.platform.passes(phase), **({"passes": added} if added else {})}

    def parameters(self, phase: str) -> Mapping[str, JsonValue]:
        """Where the added passes run, in the order in which the library names them, and for Phase1 its kernels in
        Triton."""
        places: list[JsonValue] = [
            {"function": one.function, **({"after": one.after} if one.after else {"before": one.before})}
            for one in self.added
            if one.phase == phase
        ]
        kernels = [one.declared for one in self.triton_kernels] if phase == "phase1" else []
        return {**({"places": places} if places else {}), **({"triton_kernels": kernels} if kernels else {})}
