"""How a kernel declares what may be chosen of it: the sizes of its tiles, how far ahead it reads, the number of warps.

A `ShapedRule` is a schedule rule with a shape: a frozen dataclass of integers. It lists the values of each field and
says which shape is the default for a kernel, and which others are possible for it. ScheduleKernel builds the kernel
with the default, or with the shape that a measurement has chosen; nothing else of a kernel depends on measurements.

A kernel that a pass writes, such as attention, says by which rule it was written and of what (`written_by`), so that it
can be written again with another shape.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import tvm
from tvm import tirx

from mlcbuild.compiler.kernel_attributes import WRITTEN_BY
from mlcbuild.compiler.kernels.measured_inputs import MeasuredInputs

AnyShape = TypeVar("AnyShape")  # a frozen dataclass whose fields are integers
Matched = TypeVar("Matched")  # what a rule has found in a kernel


# Sizes that are known only at run time, to measure at: a few sequences, a short prompt, a piece of one.
_SIZES = (4, 32, 128)


def _everything_fits(_matched: Any, _shape: Any) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class ShapedRule(Generic[Matched, AnyShape]):
    """A schedule rule whose kernel has a shape.

    `name` stands for the rule in records (`cpu.gemv`), with `version` where that is not 1 (`word`). What was measured
    beside another default, or at other sizes, cannot be compared: who changes either gives the rule another version,
    here and in `tuning/rule_versions.py`. `shape` is the class of shapes; `values` has for each of its
    fields the values that are tried. `match` answers what the rule has found in a kernel for a target, None where it
    does not fit; `default` is the shape without any measurement, which `values` need not contain. `fits` tells whether
    a kernel can have a shape, and `build` makes the scheduled kernel. A kernel of any number of vectors is measured at
    `sizes` of them: those for which the shape makes a difference. `inputs` is for kernels that random tensors do not
    suit, and says what they are measured with.
    """

    name: str
    shape: type[AnyShape]
    values: Mapping[str, tuple[int, ...]]
    match: Callable[[tirx.PrimFunc, tvm.target.Target], Matched | None]
    default: Callable[[Matched], AnyShape]
    build: Callable[[Matched, AnyShape], tirx.PrimFunc | None]
    fits: Callable[[Matched, AnyShape], bool] = _everything_fits
    sizes: tuple[int, ...] = _SIZES
    inputs: Callable[[Matched], MeasuredInputs] | None = None
    version: int = 1

    def __post_init__(self) -> None:
        fields = {field.name for field in dataclasses.fields(self.shape)}  # type: ignore[arg-type]
        if fields != set(self.values) or not all(self.values.values()):
            raise ValueError(f"{self.name}: values of {sorted(self.values)}, but a shape has {sorted(fields)}")

    @property
    def word(self) -> str:
        """What records, and what they choose, have as the rule: `cpu.gemv`, or `cpu.gemv:2` of the second version."""
        return self.name if self.version == 1 else f"{self.name}:{self.version}"

    def __call__(self, func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
        """The kernel with its default shape; None where the rule does not fit."""
        matched = self.match(func, target)
        return None if matched is None else self.build(matched, self.default(matched))

    def with_shape(
        self, func: tirx.PrimFunc, target: tvm.target.Target, values: Mapping[str, int]
    ) -> tirx.PrimFunc | None:
        """The kernel with a shape of these values, with its default where it cannot have that one: the record may be
        older than the rule. None where the rule does not fit."""
        matched = self.match(func, target)
        if matched is None:
            return None
        wanted = dict(values)
        shape = next((one for one in self._shapes(matched) if _as_values(one) == wanted), None)
        return self.build(matched, self.default(matched) if shape is None else shape)

    def candidates(self, func: tirx.PrimFunc, target: tvm.target.Target) -> tuple[dict[str, int], ...]:
        """The shapes that the kernel can have, the default first, then in an order in which few fields differ from it
        before many do; () where the rule does not fit."""
        matched = self.match(func, target)
        if matched is None:
            return ()
        default = self.default(matched)
        standard = _as_values(default)
        others = (_as_values(shape) for shape in self._shapes(matched))

        def distance(shape: Mapping[str, int]) -> tuple[int, list[int]]:
            return sum(shape[name] != standard[name] for name in shape), list(shape.values())

        return (standard, *sorted((shape for shape in others if shape != standard), key=distance))

    def inputs_of(self, func: tirx.PrimFunc, target: tvm.target.Target) -> MeasuredInputs | None:
        """None where random tensors do."""
        matched = self.match(func, target)
        return None if matched is None or self.inputs is None else self.inputs(matched)

    def _shapes(self, matched: Matched) -> list[AnyShape]:
        """The default and all legal combinations of values. A shape's own checks say what is legal for any kernel."""
        names = [field.name for field in dataclasses.fields(self.shape)]  # type: ignore[arg-type]
        made = [self.default(matched)]
        for combination in itertools.product(*(self.values[name] for name in names)):
            try:
                shape = self.shape(**dict(zip(names, combination, strict=True)))
            except ValueError:
                continue
            if self.fits(matched, shape):
                made.append(shape)
        return made


@dataclass(frozen=True, kw_only=True)
class Written:
    """A kernel that a pass wrote with the default shape of a rule, and what else it was written of, as JSON has it."""

    func: tirx.PrimFunc
    given: Mapping[str, Any]


def written_by(rule: str, func: tirx.PrimFunc, **given: Any) -> tirx.PrimFunc:
    """The kernel with a word of the rule that it was written by, which becomes part of its content."""
    return func.with_attr(WRITTEN_BY, json.dumps({"rule": rule, "given": given}, sort_keys=True))


def rule_of(func: tirx.PrimFunc) -> str:
    """The name of the rule that a kernel was written by, "" for others."""
    return str(json.loads(str(func.attrs[WRITTEN_BY]))["rule"]) if WRITTEN_BY in func.attrs else ""


def written_of(rule: str) -> Callable[[tirx.PrimFunc, tvm.target.Target], Written | None]:
    """What a `ShapedRule` for kernels that were written by it has as `match`."""

    def match(func: tirx.PrimFunc, _target: tvm.target.Target) -> Written | None:
        if rule_of(func) != rule:
            return None
        return Written(func=func, given=json.loads(str(func.attrs[WRITTEN_BY]))["given"])

    return match


def _as_values(shape: Any) -> dict[str, int]:
    return {field.name: int(getattr(shape, field.name)) for field in dataclasses.fields(shape)}
