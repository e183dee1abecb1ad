"""`config.json` of a checkpoint that is written: that of the model, its type, and how its weights are quantized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from mlcbuild.compiler.formats.compressed_tensors.module_form import ModuleForm
from mlcbuild.compiler.formats.compressed_tensors.tensor_plan import PlannedTensor
from mlcbuild.compiler.models.parameter_role import ParameterRole

_WEIGHT = ".weight"
# What a model's own source says of quantization, and of the type of its weights by its names in transformers 4 and 5.
_REPLACED = ("quantization_config", "compression_config", "quantization", "torch_dtype", "dtype")
_MIXED = "mixed-precision"


def checkpoint_config(
    document: Mapping[str, object], tensors: Iterable[PlannedTensor], tied: Iterable[str], *, dtype: str
) -> dict[str, object]:
    """The fields of config.json. `tied` are tensors that are equal to others, and not written."""
    found = {name: value for name, value in document.items() if name not in _REPLACED}
    found["torch_dtype"] = dtype
    quantization = quantization_config(tensors, tied)
    return found if quantization is None else {**found, "quantization_config": quantization}


def quantization_config(tensors: Iterable[PlannedTensor], tied: Iterable[str]) -> dict[str, object] | None:
    """None where nothing is quantized. The form of most modules is that of the class Linear, and all others are listed
    by name: of modules that are no Linear in some engine, a name more does no harm."""
    listed = list(tensors)
    count = Counter(tensor.form for tensor in listed if tensor.form is not None)
    if not count:
        return None
    first, *others = (form for form, _ in count.most_common())
    groups = {"group_0": _group(first, ["Linear"])}
    for number, form in enumerate(others, 1):
        groups[f"group_{number}"] = _group(form, [tensor.module for tensor in listed if tensor.form == form])
    left = [tensor.module for tensor in listed if tensor.form is None and _may_be_linear(tensor)]
    left += [name.removesuffix(_WEIGHT) for name in tied if name.endswith(_WEIGHT)]
    formats = {form.format for form in count}
    return {
        "quant_method": "compressed-tensors",
        "format": first.format if len(formats) == 1 else _MIXED,
        "quantization_status": "compressed",
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
        "ignore": left,
        "config_groups": groups,
    }


def _group(form: ModuleForm, targets: list[str]) -> dict[str, object]:
    return {
        "targets": targets,
        "weights": form.weights.document(),
        "input_activations": None if form.activations is None else form.activations.document(),
        "output_activations": None,
        "format": form.format,
    }


def _may_be_linear(tensor: PlannedTensor) -> bool:
    is_embedding = any(owner.role is ParameterRole.EMBEDDING for owner in tensor.owners)
    return len(tensor.shape) == 2 and tensor.name.endswith(_WEIGHT) and not is_embedding
