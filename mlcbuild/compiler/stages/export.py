"""Export: a model becomes a Relax module.

Reads `model` (model.json of ResolveModel) and `parameters` (parameters.json). Writes `module` (IR, high-level
operators), which shows one of many equal layers and the last (see `architecture.repetition`), and `metadata` (JSON),
which names the parameters of all. It knows no target and needs no weights, so that every library of a model and
quantization shares it. Sizes that a library may override are left to Lower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mlcbuild.compiler import ir
from mlcbuild.compiler import metadata as metadata_file
from mlcbuild.compiler.models.architecture.repetition import Repetition, repeated_names, shown_layers
from mlcbuild.compiler.models.checkpoints.parameters import ParameterList, read_parameters
from mlcbuild.compiler.models.compilable import AnyModelBuilder, CompilableModel, build_model
from mlcbuild.compiler.models.description import ModelDescription, read_model
from mlcbuild.compiler.models.embedding import DECODER_FUNCTIONS, EmbeddingModelType
from mlcbuild.compiler.quantization.reader import Reader
from mlcbuild.compiler.quantization.scheme import QuantizationScheme, StoredTensor
from mlcbuild.errors import StageError

_MOST_TOLD = 10


def run(
    *,
    model: Path,
    parameters: Path,
    module: Path,
    metadata: Path,
    models: Sequence[AnyModelBuilder],
    scheme: QuantizationScheme,
    reader: Callable[[QuantizationScheme], Reader],
    hidden_states: bool = False,
) -> None:
    """`models`, `scheme` and its `reader` are plug-ins. With `hidden_states` the module also has the entry functions
    that return or take these.

    Raises StageError for a matrix that the scheme cannot store, and for a model whose parameters are not those of the
    list.
    """
    description = read_model(model)
    layers = description.layers
    built = build_model(description, models, reader(scheme), layers=shown_layers(layers))
    exported, shown = built.export_tvm(spec=_functions(built, description, hidden_states=hidden_states))
    names = repeated_names([name for name, _ in shown], layers)
    repetition = Repetition.of(names, layers)
    by_name = dict(zip(repetition.parameters, (parameter for _, parameter in shown), strict=True))
    stand_ins = [by_name[repetition.shown_like(name)] for name in names]
    found = [
        StoredTensor(name=name, shape=tuple(map(int, parameter.shape)), dtype=str(parameter.dtype))
        for name, parameter in zip(names, stand_ins, strict=True)
    ]
    _check(found, read_parameters(parameters), scheme, family=description.family)
    ir.save_module(exported, module)
    document: dict[str, object] = {
        "model_type": description.model_type,
        "quantization": scheme.name,
        "pipeline_parallel_stages": 1,
        "disaggregation": False,
        "kv_state_kind": description.kv_state_kind,
        "vocab_size": description.vocab_size,
        **description.task,
        metadata_file.SHOWN_LAYERS: list(repetition.shown),
        "params": [
            {
                "name": parameter.name,
                "shape": list(parameter.shape),
                "dtype": parameter.dtype,
                "preprocs": [],
                "pipeline_stages": [0],
            }
            for parameter in found
        ],
    }
    metadata_file.write(document, metadata)


def _functions(built: CompilableModel, model: ModelDescription, *, hidden_states: bool) -> dict[str, dict[str, object]]:
    """The entry functions: a decoder that makes embeddings has those that return hidden states alone."""
    if model.embedding is None or model.embedding.model_type is EmbeddingModelType.ENCODER:
        return built.specification(hidden_states=hidden_states)
    functions = built.specification(hidden_states=True)
    return {name: functions[name] for name in functions if name in DECODER_FUNCTIONS}


def _check(found: Sequence[StoredTensor], listed: ParameterList, scheme: QuantizationScheme, *, family: str) -> None:
    """Raises StageError where the module's parameters are not those that the weights of a package have.

    Their order is the module's own: packages are read by name.
    """
    expected = {stored.name: stored for parameter in listed.parameters for stored in scheme.stored(parameter)}
    actual = {parameter.name: parameter for parameter in found}
    wrong = [name for name in expected | actual if expected.get(name) != actual.get(name)]
    if wrong:
        told = [f"{name}: {_shown(expected, name)} in the list, {_shown(actual, name)} in the model" for name in wrong]
        more = [f"… and {len(told) - _MOST_TOLD} more"] if len(told) > _MOST_TOLD else []
        raise StageError(
            f"the model of the family {family} has other parameters than its family.py lists",
            advice=(*told[:_MOST_TOLD], *more),
        )


def _shown(tensors: Mapping[str, StoredTensor], name: str) -> str:
    if name not in tensors:
        return "absent"
    tensor = tensors[name]
    return f"{'×'.join(map(str, tensor.shape))} {tensor.dtype}"
