"""Integers of quantized checkpoints that schemes store as they are, and those that they cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import IntegerEncoder
from mlcbuild.compiler.weights.integers import IntegerMatrix, wide
from tests.compiler import schemes
from tests.compiler.quantized_checkpoints import awq, gptq, pack_quantized, quantized_tensors, write
from tests.compiler.schemes import matrix
from tests.compiler.test_quantized_checkpoints import AWQ, GPTQ, config_of, package, packed_config

_KEEPING = [name for name in schemes.NAMES if isinstance(schemes.encoder(schemes.scheme(name)), IntegerEncoder)]


def bits_of(name: str) -> int:
    return 8 if name.startswith("int8") else int(name[1])


@st.composite
def matrices(draw: st.DrawFn, *, bits: int, group: int, most: int, symmetric: bool) -> IntegerMatrix:
    """Integers of all values, with scales in float16 that leave their products finite, of either sign."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, groups = 8 * draw(st.integers(1, 2)), draw(st.integers(1, most))
    experts = draw(st.sampled_from([(), (2,)]))
    largest = draw(st.sampled_from([0, 1, (1 << bits) - 1]))
    codes = random.integers(0, largest, (*experts, rows, groups * group), endpoint=True).astype(np.uint8)
    zeros = random.integers(0, (1 << bits) - 1, (*experts, rows, groups), endpoint=True).astype(np.uint8)
    if symmetric:
        zeros[...] = 1 << (bits - 1)
    scales = np.exp(random.uniform(-16, 4, zeros.shape)) * random.choice([-1, 0, 1, 1], zeros.shape)
    return IntegerMatrix(codes=codes, zeros=zeros, scales=scales.astype(np.float16), scale_dtype="float16")


@pytest.mark.parametrize("name", _KEEPING)
def test_every_signed_integer_of_a_schemes_bits_is_kept_exactly(name: str) -> None:
    scheme = schemes.scheme(name)
    encoder = schemes.encoder(scheme)
    assert isinstance(encoder, IntegerEncoder)
    group = {"awq": 128}.get(scheme.kind, getattr(scheme, "group_size", 32))
    most = 1 if scheme.kind in ("ft-quant", "int8-quant") else 3  # groups of a row

    @settings(max_examples=40, deadline=None)
    @given(matrices(bits=bits_of(name), group=group, most=most, symmetric=scheme.kind != "awq"))
    def check(found: IntegerMatrix) -> None:
        role = ParameterRole.LINEAR if found.codes.ndim == 2 else ParameterRole.EXPERTS
        parameter = matrix(found.codes.shape, role=role)
        stored = encoder.store(parameter, found)
        if scheme.model_dtype == "bfloat16":  # which has fewer digits than the scales
            assert stored is None or np.array_equal(encoder.decode(parameter, stored).astype(np.float32), exact(found))
            return
        assert stored is not None
        described = scheme.stored(parameter)
        assert [(one.shape, str(one.dtype)) for one in stored] == [(one.shape, one.dtype) for one in described]
        back = encoder.decode(parameter, stored)
        np.testing.assert_array_equal(back, exact(found).astype(back.dtype))

    check()


def exact(found: IntegerMatrix) -> np.ndarray:
    """(code - zero) · scale, which float32 has room for where scales are float16."""
    differences = found.codes.astype(np.float32) - np.repeat(found.zeros, found.group_size, axis=-1)
    product: np.ndarray = differences * np.repeat(found.wide_scales, found.group_size, axis=-1)
    return product


def _symmetric(codes: int, group: int, *, scale: float = 0.01, columns: int = 256) -> IntegerMatrix:
    groups = columns // group
    return IntegerMatrix(
        codes=np.full((8, columns), codes, np.uint8),
        zeros=np.full((8, groups), 8, np.uint8),
        scales=np.full((8, groups), scale, np.float32),
        scale_dtype="float32",
    )


def _unequal(group: int) -> IntegerMatrix:
    found = _symmetric(3, group, scale=0.5)
    found.scales[0, 1] = 0.25
    return found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("q4f16_autoawq", _unequal(64)),  # groups that are smaller than the scheme's
        ("q4f16_1", _unequal(16)),
        ("q4f16_1", _symmetric(3, 24, scale=0.5, columns=264)),  # groups that lie across those of the scheme
        ("q4f16_1", _symmetric(3, 128, scale=0.01)),  # a scale that float16 does not have
        ("q4f16_1", _symmetric(3, 128, scale=60000.0)),  # a product beyond float16
        ("q4f16_1", _symmetric(200, 128, scale=0.5)),  # more bits than the scheme's
        ("q4f16_autoawq", _symmetric(16, 128, scale=0.5)),
        ("q0f16", _symmetric(3, 128, scale=0.5)),
    ],
)
def test_what_a_scheme_does_not_have_is_left_to_be_quantized_again(name: str, found: IntegerMatrix) -> None:
    encoder = schemes.encoder(schemes.scheme(name))
    stored = encoder.store(matrix(found.codes.shape), found) if isinstance(encoder, IntegerEncoder) else None
    assert stored is None


@pytest.mark.parametrize(("name", "group"), [("q4f16_1", 16), ("q3f16_1", 8), ("q4f16_autoawq", 64)])
def test_parts_of_a_schemes_groups_are_kept_where_they_have_one_scale(name: str, group: int) -> None:
    found = _symmetric(7, group, scale=0.5, columns=192)
    wide = {"q4f16_1": 32, "q3f16_1": 40, "q4f16_autoawq": 128}[name]
    of_group = np.arange(0, 192, group) // wide
    found.scales[...] = 2.0**-of_group
    encoder, parameter = schemes.encoder(schemes.scheme(name)), matrix(found.codes.shape)
    assert isinstance(encoder, IntegerEncoder)
    stored = encoder.store(parameter, found)
    assert stored is not None
    np.testing.assert_array_equal(encoder.decode(parameter, stored).astype(np.float32), exact(found))


def test_a_group_is_negated_only_where_its_integers_need_it() -> None:
    found = _symmetric(1, 128, scale=0.5)
    found.codes[0, 0] = 0
    encoder = schemes.encoder(schemes.scheme("q4f16_1"))
    assert isinstance(encoder, IntegerEncoder)
    stored = encoder.store(matrix(found.codes.shape), found)
    assert stored is not None
    signs = np.sign(stored[1].astype(np.float32))
    assert signs[0].tolist() == [-1, 1, 1, 1, 1, 1, 1, 1]
    assert (signs[1:] == 1).all()


_CONFIG = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4}


def test_a_package_of_an_awq_checkpoint_has_its_bytes(tmp_path: Path) -> None:
    quantization = {**AWQ, "group_size": 128}
    config = config_of(quantization) | _CONFIG
    stored, _ = quantized_tensors(config, awq(128))
    found = package(tmp_path / "it", write(tmp_path / "m.safetensors", stored), config, "q4f16_autoawq")
    for part in ("qweight", "qzeros", "scales"):
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            assert found[f"model.layers.1.{name}.{part}"] == stored[f"model.layers.1.{name}.{part}"].tobytes()
        parts = [stored[f"model.layers.1.self_attn.{name}_proj.{part}"] for name in "qkv"]
        assert found[f"model.layers.1.self_attn.qkv_proj.{part}"] == np.concatenate(parts, axis=1).tobytes()


@pytest.mark.parametrize(
    ("quantization", "quantizer", "scheme", "is_kept"),
    [
        ({**GPTQ, "group_size": 128}, gptq(128, 4, symmetric=True), "q4f16_1", True),
        ({**GPTQ, "group_size": 128}, gptq(128, 4, symmetric=True), "q4f16_0", True),
        ({**GPTQ, "group_size": 128}, gptq(128, 4), "q4f16_autoawq", True),
        (GPTQ, gptq(32, 4), "q8f16_1", True),
        ({**GPTQ, "desc_act": True}, gptq(32, 4, act_order=True, symmetric=True), "q4f16_1", False),
        (packed_config(), pack_quantized(32, 4), "q4f16_1", True),
        (packed_config(), pack_quantized(32, 4), "q4f32_1", True),
        (packed_config(num_bits=8), pack_quantized(32, 8), "q8f16_1", True),
        (packed_config(num_bits=8), pack_quantized(32, 8), "q4f16_1", False),
        (packed_config(num_bits=8, strategy="channel", group_size=None), pack_quantized(-1, 8), "q8f16_ft", True),
        (packed_config(), pack_quantized(32, 4), "q4f16_ft", False),
    ],
)
def test_a_package_stands_for_the_numbers_of_the_checkpoint(
    quantization: dict[str, object],
    quantizer: object,
    scheme: str,
    is_kept: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = config_of(quantization) | _CONFIG
    stored, restored = quantized_tensors(config, quantizer)  # type: ignore[arg-type]
    found = package(tmp_path / "it", write(tmp_path / "m.safetensors", stored), config, scheme)
    said = capsys.readouterr().out
    assert ("kept as they are" in said) == is_kept
    assert ("quantized again" in said) == (not is_kept and not quantization.get("desc_act"))
    of = schemes.scheme(scheme)
    parameter = matrix((128, 256), name="model.layers.0.mlp.down_proj.weight")
    arrays = [
        np.frombuffer(found[one.name], one.dtype if one.dtype != "bfloat16" else "u2").reshape(one.shape)
        for one in of.stored(parameter)
    ]
    back = schemes.encoder(of).decode(parameter, arrays)
    numbers = restored[parameter.name]
    if is_kept:
        np.testing.assert_array_equal(back.astype(numbers.dtype), numbers)
    else:
        error = np.abs(back.astype(np.float64) - numbers.astype(np.float64))
        assert (error <= schemes.encoder(of).error_bound(parameter, numbers.astype(back.dtype))).all()
    assert wide(numbers, "float16").any()
