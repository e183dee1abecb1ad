"""Which tensors a checkpoint of a model has, by Hugging Face's names, in which forms, and of which parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.formats.compressed_tensors.module_form import NVFP4, ModuleForm
from mlcbuild.compiler.models.checkpoints.inverse import ParameterChain, chain_of
from mlcbuild.compiler.models.checkpoints.operations import Shape, Slice
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, TensorLayout
from mlcbuild.compiler.weights.undoing import TensorsToFill

_WEIGHT = ".weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTensor:
    """A tensor by the name that it has in a checkpoint that is not quantized; its form, None for numbers; and the
    parameters that fill it, several where each has some of its rows."""

    name: str
    shape: Shape
    form: ModuleForm | None
    owners: tuple[Parameter, ...]

    @property
    def module(self) -> str:
        return self.name.removesuffix(_WEIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """Tensors in the order of the model's layers. `chains` has the parameters that fill them, by name, with the form of
    what is moved."""

    tensors: tuple[PlannedTensor, ...]
    chains: dict[str, tuple[ParameterChain, ModuleForm | None]]


def plan_checkpoint(
    parameters: Iterable[Parameter], form_of: Callable[[Parameter], ModuleForm | None]
) -> CheckpointPlan:
    """`form_of` says the form of a parameter. A matrix that its form cannot say (its rows are not moved as a whole, its
    columns are no whole groups, or blocks of rows are cut) is planned as numbers."""
    whole: dict[str, list[Parameter]] = {}
    parts: dict[str, list[Parameter]] = {}
    listed = list(parameters)
    for parameter in listed:
        chosen = parts if any(isinstance(one, Slice) for one in parameter.operations) else whole
        for source in parameter.sources:
            chosen.setdefault(source.name, []).append(parameter)
    owners = {name: tuple(whole[name][:1] if name in whole else parts[name]) for name in (*whole, *parts)}
    filling = [one for one in listed if any(one in owners[source.name] for source in one.sources)]
    chains: dict[str, tuple[ParameterChain, ModuleForm | None]] = {}
    for parameter in filling:
        layouts = [TensorLayout(name=source.name, shape=source.shape) for source in parameter.sources]
        chain = chain_of(parameter, layouts)
        form = form_of(parameter)
        is_alone = all(len(owners[source.name]) == 1 for source in parameter.sources)
        fits = form is not None and is_alone and _fits(chain, form, parameter.shape)
        chains[parameter.name] = chain, form if fits else None
    seen: dict[str, PlannedTensor] = {}
    for parameter in filling:
        for source in parameter.sources:
            if source.name not in seen:
                seen[source.name] = PlannedTensor(
                    name=source.name,
                    shape=source.shape,
                    form=chains[parameter.name][1],
                    owners=owners[source.name],
                )
    return CheckpointPlan(tensors=tuple(seen.values()), chains=chains)


def _fits(chain: ParameterChain, form: ModuleForm, shape: Shape) -> bool:
    shapes = [layout.shape for source in chain.sources for layout in source.layouts]
    if not chain.keeps_rows or any(len(one) != 2 or one[1] % form.divides for one in shapes):
        return False
    names = [layout.name for source in chain.sources for layout in source.layouts]
    if not all(name.endswith(_WEIGHT) for name in names):
        return False
    rows = 0 if form.format == NVFP4 else form.scale_rows
    return rows == 1 or _keeps_blocks(chain, shape, names, rows)


def _keeps_blocks(chain: ParameterChain, shape: Shape, names: list[str], rows: int) -> bool:
    """Whether blocks of `rows` rows, 0 for all of a matrix, become blocks of rows of each tensor."""
    *experts, out, columns = shape
    height = rows or out
    block = np.arange(out) // height
    each = np.arange(int(np.prod(experts, initial=1)))[:, np.newaxis] * out + block
    moved = TensorsToFill()
    moved.put(chain, each.reshape(*experts, out, 1), block=columns)
    for name in names:
        found = moved.take(name)[:, 0]
        first = np.arange(len(found)) // (rows or max(len(found), 1)) * (rows or 1)
        if not (found == found[first]).all():
            return False
    return True
