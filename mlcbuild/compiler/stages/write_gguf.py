"""WriteGGUF: a package's quantized weights become a GGUF file, without being rounded again.

Reads `header` (of DescribeGGUF), `parameters` (parameters.json), and the weights: `index` (tensor-cache.json) and
`shards`. Writes `gguf`. What one parameter fills, which is a tensor or a few of them that were fused, is in memory at
a time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from mlcbuild.compiler.formats.gguf.blocks import as_elements, blocks_of
from mlcbuild.compiler.formats.gguf.header import read_header
from mlcbuild.compiler.formats.gguf.tensor_plan import PlannedParameter, PlannedTensor, plan_tensors
from mlcbuild.compiler.formats.gguf.writer import write_gguf
from mlcbuild.compiler.formats.group_integers import group_integers
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.quantization.group.scheme import GroupScheme
from mlcbuild.compiler.quantization.mixed.scheme import scheme_of
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.compiler.weights.tensor_cache import StoredWeights
from mlcbuild.compiler.weights.undoing import TensorsToFill


def run(
    *,
    header: Path,
    parameters: Path,
    index: Path,
    shards: tuple[Path, ...],
    gguf: Path,
    scheme: QuantizationScheme,
    encoder: Callable[[QuantizationScheme], Encoder],
) -> None:
    """`scheme` and its `encoder` are plug-ins. Raises StageError for a scheme without an exact form in GGUF."""
    begin = read_header(header)
    planned = plan_tensors(read_parameters(parameters).parameters, begin.as_read, scheme)
    owners = {tensor.name: one for one in planned for tensor in one.tensors}
    weights, filling = StoredWeights(index, shards), TensorsToFill()
    filled: set[str] = set()

    def tensor(wanted: PlannedTensor) -> Array:
        owner = owners[wanted.name]
        if owner.parameter.name not in filled:
            filled.add(owner.parameter.name)
            _fill(filling, owner, weights, scheme, encoder(scheme))
        return filling.take(wanted.name)

    write_gguf(gguf, begin, [tensor for one in planned for tensor in one.tensors], tensor)


def _fill(
    filling: TensorsToFill,
    planned: PlannedParameter,
    weights: StoredWeights,
    scheme: QuantizationScheme,
    encoder: Encoder,
) -> None:
    parameter = planned.parameter
    stored = [weights.read(tensor) for tensor in scheme.stored(parameter)]
    if planned.in_blocks and planned.form.block is not None:
        own, kind = scheme_of(scheme, parameter), planned.form.block
        if isinstance(own, GroupScheme):
            blocks = blocks_of(*group_integers(own, parameter, stored), bits=own.bits)
        else:
            blocks = as_elements(stored[0], kind)  # of a `GgmlScheme`, as they are
        filling.put(planned.chain, blocks, block=kind.elements)
        return
    numbers = encoder.decode(parameter, stored)
    if {tensor.kind for tensor in planned.tensors} == {"F32"}:
        numbers = numbers.astype(np.float32)
    filling.put(planned.chain, numbers)
