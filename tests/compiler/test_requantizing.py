"""Which schemes keep what a quantized checkpoint holds, as its config.json says and as its tensors show."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.compiler.quantization.kept_weights import check_kept
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.quantized_checkpoints import Quantizer, awq, gptq, pack_quantized, quantized_tensors, write
from tests.compiler.resolving import parameters_of
from tests.compiler.staged_weights import imported, quantized
from tests.compiler.test_quantized_checkpoints import AWQ, GPTQ, config_of, packed_config

_SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4}
_4 = {"q4f16_0", "q4f16_1", "q4f16_2", "q4bf16_0", "q4bf16_1", "q4f32_1"}
_8 = {"q8f16_1", "q8f32_1"}
_FP8: dict[str, object] = {"quant_method": "fp8", "activation_scheme": "dynamic"}


@pytest.mark.parametrize(
    ("quantization", "keeping"),
    [
        ({**AWQ, "group_size": 128}, {"q4f16_autoawq", *_8}),
        (AWQ, _8),
        ({**GPTQ, "group_size": 128, "sym": True}, {"q4f16_autoawq", *_4, *_8}),
        ({**GPTQ, "group_size": 128}, {"q4f16_autoawq", *_8}),
        ({**GPTQ, "desc_act": True}, set()),
        (packed_config(num_bits=8), {*_8, "q8f16_ft", "int8_int8_f16"}),
        (_FP8, {"e4m3_e4m3_f16", "fp8_e4m3fn_bf16_channel_scale", "fp8_e4m3fn_bf16_block_scale"}),
        ({**_FP8, "weight_block_size": [128, 128]}, {"fp8_e4m3fn_bf16_block_scale"}),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, set()),
    ],
)
def test_what_a_checkpoint_holds_decides_who_may_keep_it(quantization: dict[str, object], keeping: set[str]) -> None:
    held = parameters_of(config_of(quantization) | _SIZES).quantized
    assert held is not None

    def is_refused(name: str) -> bool:
        try:
            check_kept(held, (schemes.scheme(name),))
        except StageError:
            return True
        return False

    kept = {name for name in schemes.NAMES if not is_refused(name)}
    static = {"fp8_e4m3fn_bf16_block_scale_static_activation"}
    restoring = {"q0f16", "q0bf16", "q0f32"}
    assert kept - static == keeping | restoring
    assert (static <= kept) == ("fp8_e4m3fn_bf16_block_scale" in keeping)


@pytest.mark.parametrize(
    ("quantization", "quantizer", "scheme", "is_kept"),
    [
        ({**AWQ, "group_size": 128}, awq(128), "q4f16_autoawq", True),
        ({**AWQ, "group_size": 128}, awq(128), "q4f16_1", False),
        ({**GPTQ, "group_size": 128}, gptq(128, 4, symmetric=True), "q4f16_1", True),
        (GPTQ, gptq(32, 4), "q8f16_1", True),
        (packed_config(), pack_quantized(32, 4), "q4f16_ft", False),
        (packed_config(), pack_quantized(32, 4), "q0f16", True),
    ],
)
def test_tensors_that_would_be_quantized_again_are_refused(
    quantization: dict[str, object], quantizer: Quantizer, scheme: str, is_kept: bool, tmp_path: Path
) -> None:
    config = config_of(quantization) | _SIZES
    stored, _ = quantized_tensors(config, quantizer)
    imported(tmp_path, write(tmp_path / "model.safetensors", stored), config)
    if is_kept:
        quantized(tmp_path, scheme, allow_requantize=False)
        return
    with pytest.raises(StageError) as caught:
        quantized(tmp_path, scheme, allow_requantize=False)
    message = "model.layers.0.self_attn.qkv_proj.weight: the checkpoint's integers are none that"
    assert caught.value.message == f"{message} {scheme} stores: they would be quantized again"
    assert "allow_requantize = true" in caught.value.advice[0]
    quantized(tmp_path, scheme, allow_requantize=True)
