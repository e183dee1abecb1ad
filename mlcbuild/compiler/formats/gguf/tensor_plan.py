"""Which tensors a GGUF file of a model has, of which types, and from which parameters they are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlcbuild.compiler.formats.exact_forms import ExactForm, gguf_form
from mlcbuild.compiler.models.checkpoints.inverse import ParameterChain, chain_of
from mlcbuild.compiler.models.checkpoints.operations import Shape
from mlcbuild.compiler.models.checkpoints.parameters import GGUFSource, JoinedLayout, Parameter, TensorLayout
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.mixed.scheme import scheme_of
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.weights.block_types import BlockType
from mlcbuild.errors import StageError

_ALWAYS_FLOAT32 = (ParameterRole.VECTOR, ParameterRole.FLOAT32, ParameterRole.ROUTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTensor:
    """`kind` is the name of ggml's type; shapes have the slowest axis first."""

    name: str
    kind: str
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedParameter:
    """A parameter as the weights have it, and the tensors that it fills. If `in_blocks`, they hold its numbers as they
    are, in the blocks of its `form`."""

    parameter: Parameter
    form: ExactForm
    chain: ParameterChain
    tensors: tuple[PlannedTensor, ...]
    in_blocks: bool


def plan_tensors(
    parameters: Iterable[Parameter], as_read: Iterable[Parameter], scheme: QuantizationScheme
) -> tuple[PlannedParameter, ...]:
    """The tensors in the order of the model's layers. `as_read` are the parameters as they are made of a file, in the
    same order. Vectors and routers are float32, as llama.cpp wants them; matrices that quantized blocks cannot say
    (their rows are not moved as a whole, or are no whole groups) are restored to the model's type.

    Raises StageError for a model with a tensor that GGUF files do not have, and for a scheme without an exact form in
    them.
    """
    planned: list[PlannedParameter] = []
    seen: set[str] = set()
    for parameter, read in zip(parameters, as_read, strict=True):
        layouts = [_in_gguf(source.name, source.gguf) for source in read.sources]
        names = [tensor.name for tensor in tensors_of(layouts)]
        if seen.issuperset(names):  # a part of what another parameter has whole, or the embedding again
            continue
        if seen.intersection(names):
            raise ValueError(f"{parameter.name} fills some tensors that another parameter does: {names}")
        seen.update(names)
        chain = chain_of(read, layouts)
        own = scheme_of(scheme, parameter)
        form = gguf_form(own, parameter)
        in_blocks = form.block is not None and _fits(chain, form.block)
        tensors = {
            tensor.name: PlannedTensor(
                name=tensor.name, kind=_kind(parameter, tensor, form, in_blocks=in_blocks), shape=tensor.shape
            )
            for tensor in tensors_of(layouts)
        }
        planned.append(
            PlannedParameter(
                parameter=parameter, form=form, chain=chain, tensors=tuple(tensors.values()), in_blocks=in_blocks
            )
        )
    return tuple(planned)


def tensors_of(layouts: Sequence[GGUFSource]) -> list[TensorLayout]:
    """The tensors of a file, some of them several times."""
    return [
        tensor for layout in layouts for tensor in (layout.tensors if isinstance(layout, JoinedLayout) else (layout,))
    ]


def _in_gguf(name: str, layout: GGUFSource | None) -> GGUFSource:
    if layout is None:
        raise StageError(f"no GGUF file has {name}, which this model has")
    return layout


def _fits(chain: ParameterChain, block: BlockType) -> bool:
    sizes = {layout.shape[-1] for source in chain.sources for layout in source.layouts}
    return chain.keeps_rows and all(size % block.elements == 0 for size in sizes)


def _kind(parameter: Parameter, tensor: TensorLayout, form: ExactForm, *, in_blocks: bool) -> str:
    if in_blocks and form.block is not None:
        return form.block.name
    if len(tensor.shape) == 1 or parameter.role in _ALWAYS_FLOAT32:
        return "F32"
    return form.ggml_numbers
