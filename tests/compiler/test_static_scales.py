"""Static scales of what matrices are multiplied by, from checkpoints and from statistics, as packages have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlcbuild.compiler.calibration.made_parameters import made, write_made_shard
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters, write_parameters
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import StaticScalesEncoder
from mlcbuild.compiler.stages import maximum
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.errors import InternalError, StageError
from tests.compiler import schemes
from tests.compiler.calibration.observing_hooks import observe, write_statistics
from tests.compiler.parity import bound, compare, reference, sequences
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.quantized_checkpoints import float8, quantized_tensors, write
from tests.compiler.resolving import parameters_of
from tests.compiler.rounded_activations import round_activations
from tests.compiler.running import Library, random_model, tensors_of
from tests.compiler.schemes import matrix
from tests.compiler.staged_weights import imported, quantized
from tests.compiler.staged_weights import stored as stored_in
from tests.compiler.test_float8_checkpoints import FP8, WIDE, compressed, config_of
from tests.compiler.test_llama_parity import MODELS
from tests.compiler.tiny_models import Array

PER_TENSOR, BLOCKS = "e4m3_e4m3_f16", "fp8_e4m3fn_bf16_block_scale_static_activation"
LAYER = "model.layers.0"
STATIC: dict[str, tuple[dict[str, object], str, int]] = {  # with the name of the scales, and rows of a weight's scale
    "AutoFP8": ({**FP8, "activation_scheme": "static"}, "input_scale", 0),
    "transformers": (
        {**FP8, "activation_scheme": "static", "weight_block_size": [128, 128]},
        "activation_scale",
        128,
    ),
    "older": ({**FP8, "activation_scheme": "static"}, "input_activation_scale", 0),
    "llm-compressor": (
        compressed({"strategy": "tensor"}, {"dynamic": False, "strategy": "tensor"}),
        "input_scale",
        0,
    ),
}


def checkpoint(name: str) -> tuple[dict[str, object], dict[str, Array]]:
    """A config.json, and tensors in which each matrix has another static scale."""
    quantization, scale, rows = STATIC[name]
    quantizer = float8(rows, rows, scale="weight_scale_inv" if rows else "weight_scale")
    config = config_of(quantization)
    tensors, _ = quantized_tensors(config, quantizer)
    modules = [
        each.removesuffix(".weight") for each, array in tensors.items() if array.dtype == ml_dtypes.float8_e4m3fn
    ]
    scales = {
        f"{module}.{scale}": np.full((1,) if number % 2 else (), (number + 1) / 64, np.float32)
        for number, module in enumerate(modules)
    }
    return config, tensors | scales


def packaged(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Array], scheme: str) -> dict[str, Array]:
    directory.mkdir(exist_ok=True)
    imported(directory, write(directory / "model.safetensors", tensors), config)
    return stored_in(directory, quantized(directory, scheme))


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize(("scheme", "static"), [(PER_TENSOR, "q_calibration_scale"), (BLOCKS, "activation_scale")])
def test_scales_of_checkpoints_are_those_of_packages(name: str, scheme: str, static: str, tmp_path: Path) -> None:
    config, tensors = checkpoint(name)
    found = packaged(tmp_path, config, tensors, scheme)
    suffix = STATIC[name][1]
    for parameter in parameters_of(WIDE).parameters:
        if parameter.role is not ParameterRole.LINEAR:
            continue
        modules = [source.name.removesuffix("weight") for source in parameter.sources]
        expected = max(float(tensors[module + suffix].reshape(())) for module in modules)  # q, k and v read one input
        stored = found[f"{parameter.name.removesuffix('weight')}{static}"]
        parts = -(-parameter.shape[1] // 128) if scheme == BLOCKS else 1
        np.testing.assert_array_equal(stored, np.full(parts, expected, np.float32))


def test_a_scheme_without_static_scales_says_that_they_are_not_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, tensors = checkpoint("AutoFP8")
    found = packaged(tmp_path, config, tensors, "fp8_e4m3fn_bf16_channel_scale")
    assert f"{LAYER}.self_attn.o_proj.weight: static scales of activations are not stored" in capsys.readouterr().out
    assert not [each for each in found if "activation" in each or "calibration" in each]


def test_a_made_shard_has_what_the_imported_one_has(tmp_path: Path) -> None:
    config, tensors = checkpoint("llm-compressor")
    directly = packaged(tmp_path, config, tensors, BLOCKS)
    listed = read_parameters(tmp_path / "parameters.json")
    (shard,) = (tmp_path / "shards").iterdir()
    write_made_shard(tmp_path / "made", ImportedShard(shard), listed)
    (tmp_path / "made").replace(shard)
    write_parameters(made(listed), tmp_path / "parameters.json")
    found = stored_in(tmp_path, quantized(tmp_path, BLOCKS))
    assert {each: array.tobytes() for each, array in found.items()} == {
        each: array.tobytes() for each, array in directly.items()
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (None, r"q_proj is quantized by fp8, and lacks model\.layers\.0\.self_attn\.q_proj\.input_scale"),
        (np.ones(2, np.float32), r"q_proj is not as fp8 has it: input_scale \[2\]"),
        (np.ones(1, np.int32), r"q_proj\.input_scale is int32 and has to be float32"),
        (np.full(1, -1, np.float32), r"activations of model\.layers\.0\.self_attn\.q_proj\.weight is negative: -1\.0"),
        (np.full(1, np.nan, np.float32), "holds nan"),
    ],
)
def test_damaged_scales_are_told(changed: Array | None, message: str, tmp_path: Path) -> None:
    config, tensors = checkpoint("AutoFP8")
    name = f"{LAYER}.self_attn.q_proj.input_scale"
    given = {each: array for each, array in tensors.items() if each != name}
    with pytest.raises(StageError, match=message):
        packaged(tmp_path, config, given if changed is None else given | {name: changed}, PER_TENSOR)


def test_groups_with_and_without_static_scales_are_refused() -> None:
    one = compressed({}, {"dynamic": False, "strategy": "tensor"})
    groups = one["config_groups"], compressed()["config_groups"]
    assert all(isinstance(group, dict) for group in groups)
    both = {f"group_{number}": group["group_0"] for number, group in enumerate(groups)}  # type: ignore[index]
    with pytest.raises(StageError, match="has groups with static scales of activations, and groups without"):
        parameters_of(config_of({**one, "config_groups": both}))


@pytest.mark.parametrize("scheme", [PER_TENSOR, BLOCKS])
def test_scales_are_the_largest_that_was_seen_by_the_largest_float(scheme: str) -> None:
    encoder = schemes.encoder(schemes.scheme(scheme))
    assert isinstance(encoder, StaticScalesEncoder)
    largest = np.random.default_rng(0).uniform(0, 20, 300).astype(np.float32)
    largest[128:256] = 0
    parts = [largest] if scheme == PER_TENSOR else [largest[:128], largest[128:256], largest[256:]]
    found = encoder.static_scales_of(matrix((8, 300)), largest)
    np.testing.assert_array_equal(found, [part.max() / np.float32(448) for part in parts])
    assert encoder.static_scales_of(matrix((2, 8, 300), role=ParameterRole.EXPERTS), largest) is None
    assert encoder.static_scales_of(matrix((8, 300), role=ParameterRole.EMBEDDING), largest) is None


def calibrated(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Array], of: Path, name: str) -> Any:
    """The weights of a package by Maximum."""
    directory.mkdir(exist_ok=True)
    imported(directory, write(directory / "model.safetensors", tensors), config)
    scheme = schemes.scheme(name)
    for shard in sorted((directory / "shards").iterdir()):
        out = directory / "calibrated"
        maximum.run(
            shard=shard,
            parameters=directory / "parameters.json",
            statistics=of,
            calibrated=out,
            scheme=scheme,
            encoder=schemes.encoder_class(scheme),
        )
        out.replace(shard)
    write_parameters(made(read_parameters(directory / "parameters.json")), directory / "parameters.json")
    return stored_in(directory, quantized(directory, name))


def test_calibrated_scales_replace_those_of_a_checkpoint_where_an_input_was_seen(tmp_path: Path) -> None:
    config, tensors = checkpoint("AutoFP8")
    seen, unseen = f"{LAYER}.self_attn.o_proj", f"{LAYER}.mlp.down_proj"
    rows = np.full((3, 256), 7, np.float32)
    statistics = write_statistics(tmp_path / "statistics", {f"{seen}.weight": rows})
    plain = packaged(tmp_path / "plain", config, tensors, PER_TENSOR)
    found = calibrated(tmp_path / "with", config, tensors, statistics, PER_TENSOR)
    assert found[f"{seen}.q_calibration_scale"].tolist() == [np.float32(7) / np.float32(448)]
    for each, array in found.items():
        if each != f"{seen}.q_calibration_scale":
            assert array.tobytes() == plain[each].tobytes()
    assert found[f"{unseen}.q_calibration_scale"] > 0


def test_statistics_of_another_width_and_other_schemes_are_refused(tmp_path: Path) -> None:
    config, tensors = checkpoint("AutoFP8")
    statistics = write_statistics(tmp_path / "statistics", {f"{LAYER}.mlp.down_proj.weight": np.ones((2, 8), "f4")})
    with pytest.raises(StageError, match="has 128 columns, and the statistics 8"):
        calibrated(tmp_path / "a", config, tensors, statistics, PER_TENSOR)
    with pytest.raises(InternalError, match="no static scales"):
        calibrated(tmp_path / "b", config, tensors, statistics, "q4f16_1")


@pytest.mark.slow
@pytest.mark.parametrize("name", [PER_TENSOR, pytest.param(BLOCKS, marks=pytest.mark.exhaustive)])
def test_a_library_computes_with_the_scales_that_were_stored(name: str, tmp_path: Path, kernel_store: Path) -> None:
    """Scales are those of a tenth of what was seen, so that most is cut off: without them logits are others."""
    config: dict[str, Any] = MODELS["grouped-64-tied"]
    scheme = schemes.scheme(name)
    model, plain = random_model(config), random_model(config)
    texts = sequences(config["vocab_size"])
    statistics = observe(model, [texts[0]], tmp_path / "statistics", times=0.1)
    tensors = {each: array for each, array in tensors_of(model).items() if each != "lm_head.weight"}
    weights = calibrated(tmp_path / "weights", config, tensors, statistics, name)
    static: dict[str, Array] = {}
    for parameter in parameters_of(config).parameters:
        if scheme.covers(parameter.role):
            scales = weights[scheme.stored(parameter)[-1].name]
            assert (scales > 0).all()
            static |= {source.name: scales for source in parameter.sources}
    for each in (model, plain):
        state = tensors_of(each)
        for tensor, numbers in schemes.restored(config, scheme, weights).items():
            state[tensor][...] = numbers
    round_activations(model, scheme, static)
    round_activations(plain, scheme)
    expected = [reference(model, text) for text in texts]
    without = reference(plain, texts[0])
    path = compile_library(config, name, CPU_TARGET, tmp_path, kernel_store=kernel_store)
    allowed = bound(config, scheme, float(np.abs(expected[0]).max()))
    error = compare(Library.load(path, weights), texts, expected, allowed=allowed)
    assert error < 0.2 * float(np.abs(without - expected[0]).max())
