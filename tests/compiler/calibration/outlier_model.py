"""A small llama some of whose channels are outliers, and what a calibration makes of it.

It is made of a plain model by `Scaling`: columns of a few channels are divided by a factor, and what makes the inputs
is multiplied by it. So it computes what the plain model does, but integers in groups are bad at it. The right answer of
a calibration is known: with the inverse scales it is the plain model, and quantizes as well as that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from mlcbuild.compiler.calibration.made_parameters import made
from mlcbuild.compiler.calibration.scales import Scales, Scaling
from mlcbuild.compiler.calibration.statistics import ObservedInput, write_index, write_input
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters, write_parameters
from mlcbuild.compiler.stages import apply_scales, quantize
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler import schemes
from tests.compiler.parity import reference
from tests.compiler.resolving import parameters_of, write_resolved
from tests.compiler.running import random_model, tensors_of
from tests.compiler.tiny_models import Array

FACTOR = 32.0
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True, kw_only=True)
class Models:
    """The two models as transformers has them, and the checkpoints of both."""

    plain: Any
    outliers: Any
    plain_tensors: Mapping[str, Array]
    tensors: Mapping[str, Array]
    channels: Mapping[str, Array]  # which channels are outliers, by the first matrix that reads them


def make_models() -> Models:
    listed, scheme = parameters_of(CONFIG), schemes.scheme("q0f32")
    tensors = {name: array.copy() for name, array in tensors_of(random_model(CONFIG)).items()}
    for name, array in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            array *= 0.25  # so that the layers' errors do not grow from one to the next
    tensors["model.embed_tokens.weight"] = _whole_numbers(tensors["model.embed_tokens.weight"].shape)
    plain = loaded(tensors)
    stored = schemes.stored(CONFIG, scheme, tensors)
    random = np.random.default_rng(11)
    channels = {one.matrices[0]: random.permutation(one.channels)[: one.channels // 8] for one in listed.smoothed}
    scales = {}
    for one in listed.smoothed:
        scales[one.matrices[0]] = np.ones(one.channels, np.float32)
        scales[one.matrices[0]][channels[one.matrices[0]]] = 1 / FACTOR
    scaling = Scaling(found=Scales(scales=scales), smoothed=listed.smoothed)
    changed = {one.name: scaling.changed(one, stored[one.name], None) for one in listed.parameters}
    found = schemes.restored(CONFIG, scheme, changed)
    return Models(
        plain=plain,
        outliers=loaded(found),
        plain_tensors=tensors,
        tensors=found,
        channels=channels,
    )


def _whole_numbers(shape: tuple[int, ...]) -> Array:
    """A table that integers of 4 bits have exactly: what is measured is the error of the layers alone."""
    table = np.random.default_rng(2).integers(-7, 8, shape).astype(np.float32)
    table[:, ::8] = 7
    return table / 4


def loaded(tensors: Mapping[str, Array]) -> Any:
    """The model of transformers with these tensors."""
    import torch

    model = random_model(CONFIG)
    missing = model.load_state_dict(
        {name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}, strict=False
    )
    assert missing.missing_keys == ["lm_head.weight"]
    assert not missing.unexpected_keys
    return model


def texts(count: int, *, seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, CONFIG["vocab_size"], 64).tolist() for _ in range(count)]


def write_statistics(folder: Path, model: Any, sample: Sequence[list[int]]) -> None:
    """What calibration sees of a sample, by hooks in transformers."""
    import torch

    folder.mkdir()
    readers = {
        parameter.sources[0].name.removesuffix(".weight"): parameter.name
        for parameter in parameters_of(CONFIG).parameters
        if len(parameter.shape) == 2 and "embed" not in parameter.name
    }
    seen: dict[str, list[Array]] = {name: [] for name in readers.values()}
    handles = [
        module.register_forward_pre_hook(
            lambda _, given, name=readers[path]: seen[name].append(
                given[0].detach().numpy().reshape(-1, given[0].shape[-1])
            )
        )
        for path, module in model.named_modules()
        if path in readers
    ]
    with torch.no_grad():
        for text in sample:
            model(torch.tensor([text]))
    for handle in handles:
        handle.remove()
    inputs = []
    for number, (name, rows_of) in enumerate(seen.items()):
        rows = np.concatenate(rows_of)
        wide = rows.astype(np.float64)
        write_input(
            folder / f"{number}.safetensors",
            gram=(wide.T @ wide).astype(np.float32),
            absolute_sum=np.abs(wide).sum(axis=0).astype(np.float32),
            maximum=np.abs(rows).max(axis=0),
        )
        inputs.append(
            ObservedInput(file=f"{number}.safetensors", matrices=(name,), width=rows.shape[1], rows=len(rows))
        )
    write_index(folder, tokens=sum(map(len, sample)), inputs=inputs)


def write_shard(folder: Path, tensors: Mapping[str, Array]) -> Path:
    """The imported shard of a checkpoint, beside its parameters.json and that of made shards."""
    folder.mkdir(exist_ok=True)
    write_resolved(folder, CONFIG)
    write_parameters(made(read_parameters(folder / "parameters.json")), folder / "made.json")
    save_file(dict(tensors), folder / "shard.safetensors")
    return folder / "shard.safetensors"


def restored(folder: Path, shard: Path, quantization: str, *, parameters: str) -> dict[str, Array]:
    """The tensors that a quantized shard stands for."""
    weights = stored(shard, quantization, parameters=folder / parameters)
    return schemes.restored(CONFIG, schemes.scheme(quantization), weights)


def stored(shard: Path, quantization: str, *, parameters: Path) -> dict[str, Array]:
    """What Quantize stores of a shard."""
    scheme, folder = schemes.scheme(quantization), parameters.parent
    quantize.run(
        shard=shard,
        parameters=parameters,
        shard_out=folder / "out.bin",
        records=folder / "records.json",
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
        index=0,
    )
    data, weights = (folder / "out.bin").read_bytes(), {}
    for record in json.loads((folder / "records.json").read_text())["records"]:
        part = data[record["byteOffset"] : record["byteOffset"] + record["nbytes"]]
        weights[record["name"]] = np.frombuffer(part, dtype_of(record["dtype"])).reshape(record["shape"])
    return weights


def calibrated(folder: Path, shard: Path, scales: Path, quantization: str) -> dict[str, Array]:
    """The tensors that an imported shard stands for with scales carried out, quantized."""
    apply_scales.run(
        shard=shard, parameters=folder / "parameters.json", scales=scales, calibrated=folder / "calibrated.safetensors"
    )
    return restored(folder, folder / "calibrated.safetensors", quantization, parameters="made.json")


def logits_error(tensors: Mapping[str, Array], model: Any, sample: Sequence[list[int]]) -> float:
    """The root of the mean squared difference of logits, relative to that of the logits."""
    other = loaded(tensors)
    expected = np.concatenate([reference(model, text) for text in sample])
    found = np.concatenate([reference(other, text) for text in sample])
    return float(np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean()))
