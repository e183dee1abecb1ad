"""WriteCompressedTensors: a package's quantized weights become a checkpoint that vLLM, SGLang and transformers load,
without being rounded again.

Reads `config` (config.json of ImportConfig), `parameters` (parameters.json), and the weights: `index`
(tensor-cache.json) and `shards`. Writes `config_out` (config.json) and the directory `checkpoint` (safetensors, by
Hugging Face's names). What one parameter fills, which is a tensor or a few of them that were fused, is in memory at a
time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.formats.compressed_tensors.checkpoint_files import write_checkpoint
from mlcbuild.compiler.formats.compressed_tensors.described_model import check_model
from mlcbuild.compiler.formats.compressed_tensors.matrix_rows import rows_of, tensors_of, written
from mlcbuild.compiler.formats.compressed_tensors.module_form import ModuleForm, form_of
from mlcbuild.compiler.formats.compressed_tensors.quantization_config import checkpoint_config
from mlcbuild.compiler.formats.compressed_tensors.tensor_plan import CheckpointPlan, PlannedTensor, plan_checkpoint
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, read_parameters
from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.quantization.mixed.scheme import scheme_of
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme, StaticScalesScheme, kept_dtype
from mlcbuild.compiler.weights.tensor import Array, Tensor, TensorDescription, storage_of
from mlcbuild.compiler.weights.tensor_cache import StoredWeights
from mlcbuild.compiler.weights.undoing import TensorsToFill


def run(
    *,
    config: Path,
    parameters: Path,
    index: Path,
    shards: tuple[Path, ...],
    config_out: Path,
    checkpoint: Path,
    scheme: QuantizationScheme,
    encoder: Callable[[QuantizationScheme], Encoder],
) -> None:
    """`scheme` and its `encoder` are plug-ins. Raises StageError for a scheme, and for a model, that compressed-tensors
    cannot say."""
    listed, document = read_parameters(parameters), read_document(config)
    check_model(document, listed.parameters)
    weights = StoredWeights(index, shards)

    def form(parameter: Parameter) -> ModuleForm | None:
        return form_of(scheme, parameter, static=_has_static_scales(scheme, parameter, weights))

    plan = plan_checkpoint(listed.parameters, form)
    tied = [one.tensor.name for one in listed.tied]
    made = checkpoint_config(document, plan.tensors, tied, dtype=scheme.model_dtype)
    config_out.write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    filled = _FilledTensors(plan, weights, scheme, encoder(scheme))
    write_checkpoint(checkpoint, [one for tensor in plan.tensors for one in filled.described(tensor)], filled.read)


def _has_static_scales(scheme: QuantizationScheme, parameter: Parameter, weights: StoredWeights) -> bool:
    """Whether scales of activations are stored for a parameter: zeros are none."""
    own = scheme_of(scheme, parameter)
    if not isinstance(own, StaticScalesScheme) or not own.covers(parameter.role) or not own.static_scales(parameter):
        return False
    return bool((weights.read(own.stored(parameter)[-1]) > 0).any())


class _FilledTensors:
    """The tensors of a checkpoint, each read once, in the order of the plan."""

    def __init__(
        self, plan: CheckpointPlan, weights: StoredWeights, scheme: QuantizationScheme, encoder: Encoder
    ) -> None:
        self._plan, self._weights, self._scheme, self._encoder = plan, weights, scheme, encoder
        self._whose: dict[str, PlannedTensor] = {}
        self._filled: set[str] = set()
        self._numbers = TensorsToFill()
        self._rows: dict[tuple[str, np.dtype[Any]], TensorsToFill] = {}  # what `rows_of` names, by type
        self._kept: dict[str, Mapping[str, Array]] = {}  # of the last matrix alone, of which several are written

    def described(self, tensor: PlannedTensor) -> list[TensorDescription]:
        """The tensors that are written for one of the plan."""
        if tensor.form is None:
            dtype = kept_dtype(tensor.owners[0], self._scheme.model_dtype)
            found = [TensorDescription(name=tensor.name, dtype=dtype, shape=tensor.shape)]
        else:
            found = tensors_of(tensor.form, tensor.module, tensor.shape)
        self._whose |= {one.name: tensor for one in found}
        return found

    def read(self, described: TensorDescription) -> Tensor:
        tensor = self._whose[described.name]
        for owner in tensor.owners:
            if owner.name not in self._filled:
                self._filled.add(owner.name)
                self._fill(owner)
        if tensor.form is None:
            numbers = self._numbers.take(tensor.name)
            data = np.ascontiguousarray(numbers).view(storage_of(described.dtype))
            return Tensor(description=described, data=data)
        if tensor.name not in self._kept:
            self._kept.clear()
            self._kept[tensor.name] = {
                name: np.ascontiguousarray(rows.take(tensor.name)).view(dtype)
                for (name, dtype), rows in self._rows.items()
                if rows.has(tensor.name)
            }
        return written(tensor.form, self._kept[tensor.name], described, tensor.shape)

    def _fill(self, parameter: Parameter) -> None:
        chain, form = self._plan.chains[parameter.name]
        stored = [self._weights.read(tensor) for tensor in self._scheme.stored(parameter)]
        if form is None:
            self._numbers.put(chain, self._encoder.decode(parameter, stored))
            return
        for name, array in rows_of(self._scheme, parameter, form, stored).items():
            whole = np.ascontiguousarray(array)
            rows = whole.view(f"V{whole.shape[-1] * whole.itemsize}")  # a row is moved as one element
            moving = self._rows.setdefault((name, whole.dtype), TensorsToFill())
            moving.put(chain, rows, block=parameter.shape[-1])
