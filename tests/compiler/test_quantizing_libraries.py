"""Checkpoints that the quantizing libraries themselves write, and the numbers that they restore of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compiler.quantized_checkpoints import write
from tests.compiler.test_quantized_checkpoints import INT8, NF4, opened, packed_config
from tests.compiler.tiny_models import Array
from tests.parity_packages import parity_package

pytestmark = pytest.mark.slow  # they import torch
_ROWS, _COLUMNS = 48, 128


def _array(tensor: Any) -> Array:
    import torch

    array: Array = tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
    return array


def _weight() -> Any:
    torch = parity_package("torch")
    torch.manual_seed(0)
    return torch.randn(_ROWS, _COLUMNS) * 0.05


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [False, True])
def test_4_bits_of_bitsandbytes(kind: str, nested: bool, dtype: str, tmp_path: Path) -> None:
    torch = parity_package("torch")
    functional = parity_package("bitsandbytes.functional")
    quantized, state = functional.quantize_4bit(
        _weight().to(getattr(torch, dtype)), quant_type=kind, blocksize=64, compress_statistics=nested
    )
    stored = {"m.weight": _array(quantized)}
    stored |= {f"m.weight.{name}": _array(part) for name, part in state.as_dict(packed=True).items()}
    source = opened(write(tmp_path / "model.safetensors", stored), {**NF4, "bnb_4bit_quant_type": kind})
    expected = functional.dequantize_4bit(quantized, state)
    np.testing.assert_array_equal(source.read("m.weight").numbers("float32"), expected.float().numpy())


def test_8_bits_of_bitsandbytes(tmp_path: Path) -> None:
    torch = parity_package("torch")
    functional = parity_package("bitsandbytes.functional")
    quantized, largest, _ = functional.int8_vectorwise_quant(_weight().to(torch.float16))
    stored = {"m.weight": _array(quantized), "m.SCB": _array(largest), "m.weight_format": np.zeros((), np.uint8)}
    source = opened(write(tmp_path / "model.safetensors", stored), INT8)
    expected = _array(functional.int8_vectorwise_dequant(quantized, largest))
    # A division by 127 here, a product with the float32 next to 1 / 127 there.
    np.testing.assert_allclose(source.read("m.weight").data, expected, rtol=2**-22, atol=0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("strategy", ["group", "channel"])
def test_pack_quantized_of_compressed_tensors(bits: int, symmetric: bool, strategy: str, tmp_path: Path) -> None:
    torch = parity_package("torch")
    parity_package("compressed_tensors")
    from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    group = 32 if strategy == "group" else None
    arguments = QuantizationArgs(num_bits=bits, symmetric=symmetric, strategy=strategy, group_size=group)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    weight = _weight().to(torch.bfloat16)
    groups = weight.reshape(_ROWS, -1, group or _COLUMNS)
    scales, zeros = calculate_qparams(groups.amin(-1), groups.amax(-1), arguments)
    state = {"weight": weight, "weight_scale": scales, "weight_zero_point": zeros}
    compressed = PackedQuantizationCompressor.compress(state, scheme)
    stored = {f"m.{name}": _array(tensor) for name, tensor in compressed.items()}
    configuration = packed_config(num_bits=bits, symmetric=symmetric, strategy=strategy, group_size=group)
    source = opened(write(tmp_path / "model.safetensors", stored), configuration)
    expected = PackedQuantizationCompressor.decompress(compressed, scheme)["weight"]
    np.testing.assert_array_equal(source.read("m.weight").data, _array(expected))
