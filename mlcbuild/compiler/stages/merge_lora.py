"""MergeLora: LoRA adapters are merged into one imported shard.

Reads `shard` (safetensors, Hugging Face names), `parameters` (parameters.json) and the folder `adapters`, which has one
folder an adapter: 0, 1, … Writes `merged`, with the same tensors. Tensors that an adapter changes are float32 in it; a
shard of which none is changed stays as it is, so it is not quantized again. One tensor is in memory at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from mlcbuild.compiler.models.checkpoints.parameters import ParameterList, read_parameters
from mlcbuild.compiler.weights.checkpoint import sources_of
from mlcbuild.compiler.weights.imported_shard import ACTIVATIONS, ImportedShard
from mlcbuild.compiler.weights.lora import LoraAdapter
from mlcbuild.compiler.weights.safetensors_file import write_safetensors
from mlcbuild.compiler.weights.tensor import Tensor, TensorDescription
from mlcbuild.errors import StageError

_SHOWN = 8


def run(*, shard: Path, parameters: Path, adapters: Path, merged: Path, shares: Sequence[float]) -> None:
    """`shares` are how much of each adapter is added, in the order in which they are merged. Raises StageError for an
    adapter that is damaged, is of another model, or does what is not computed."""
    source = ImportedShard(shard)
    with ExitStack() as stack:
        opened = []
        for number, share in enumerate(shares):
            adapter = LoraAdapter(adapters / str(number), share=share)
            stack.callback(adapter.close)
            _check_fits(adapter, read_parameters(parameters))
            opened.append(adapter)
        changed = {name: [one for one in opened if name in one.tensors] for name in source.descriptions}
        if not any(changed.values()):
            shutil.copyfile(shard, merged)
            return
        descriptions: list[TensorDescription] = []
        for name, described in source.descriptions.items():
            if changed[name]:
                descriptions.append(TensorDescription(name=name, dtype="float32", shape=described.shape))
                descriptions += [one for one in source.layout(name) if one.name == name + ACTIVATIONS]
            else:
                descriptions += source.layout(name)
        write_safetensors(merged, descriptions, lambda described: _merged(source, described, changed))


def _merged(
    source: ImportedShard, described: TensorDescription, changed: Mapping[str, Sequence[LoraAdapter]]
) -> Tensor:
    if not changed.get(described.name):
        return source.as_it_is(described.name)
    numbers = source.read(described.name).numbers("float32")
    for adapter in changed[described.name]:
        numbers = adapter.merged(described.name, numbers)
    return Tensor(description=described, data=numbers)


def _check_fits(adapter: LoraAdapter, listed: ParameterList) -> None:
    shapes = {tensor.name: tensor.shape for tensor in sources_of(listed.parameters)}
    tied = {one.tensor.name: one.equal_to for one in listed.tied}
    problems = []
    for name in sorted(adapter.tensors):
        if name in shapes:
            problems += [problem] if (problem := adapter.problem(name, shapes[name])) else []
        elif name in tied:
            problems.append(f"{name} is tied to {tied[name]}, and cannot be changed alone")
        elif not listed.is_ignored(name):
            problems.append(f"the model has no {name}")
    if not adapter.tensors:
        problems.append("it changes nothing")
    if problems:
        more = [f"… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise StageError(f"{adapter.folder} is no adapter of this model", advice=(*problems[:_SHOWN], *more))
