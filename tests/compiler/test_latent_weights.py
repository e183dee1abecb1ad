"""What packages have of checkpoints with latent attention: MLC-LLM's names and shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlcbuild.errors import StageError
from tests.compiler.family_cases import CASES
from tests.compiler.resolving import model_of
from tests.compiler.running import random_model, tensors_of
from tests.compiler.staged_weights import imported, quantized, stored
from tests.compiler.tiny_models import Array

_CONFIG: dict[str, Any] = {**CASES["deepseek_v3"].config, "num_hidden_layers": 2, "q_lora_rank": 32}
_LAYER = "model.layers.1"


def _checkpoint(folder: Path, *, before_saving: bool) -> dict[str, Array]:
    """The tensors of a random model, saved as DeepSeek's checkpoints are, or as transformers has them in memory."""
    model = random_model(_CONFIG)
    model.save_pretrained(folder, save_original_format=before_saving)
    return tensors_of(model)


@pytest.mark.parametrize("before_saving", [True, False])
def test_a_checkpoint_becomes_what_mlc_llm_has(tmp_path: Path, before_saving: bool) -> None:
    tensors = _checkpoint(tmp_path / "model", before_saving=before_saving)
    imported(tmp_path, tmp_path / "model", _CONFIG)
    found = stored(tmp_path, quantized(tmp_path, "q4f16_1"))
    heads, plain, rank, value = 4, _CONFIG["qk_nope_head_dim"], _CONFIG["kv_lora_rank"], _CONFIG["v_head_dim"]
    whole = tensors[f"{_LAYER}.self_attn.kv_b_proj.weight"].reshape(heads, plain + value, rank).astype("float16")
    np.testing.assert_array_equal(found[f"{_LAYER}.self_attn.w_uk"], whole[:, :plain].transpose(0, 2, 1))
    np.testing.assert_array_equal(found[f"{_LAYER}.self_attn.w_uv"], whole[:, plain:])
    assert found[f"{_LAYER}.self_attn.kv_b_proj.q_weight"].shape == (heads * (plain + value), rank // 8)
    correction = found[f"{_LAYER}.mlp.e_score_correction_bias"]
    assert correction.dtype == np.float32
    np.testing.assert_array_equal(correction, tensors[f"{_LAYER}.mlp.gate.e_score_correction_bias"])
    own = {name.removeprefix(f"{_LAYER}.self_attn.") for name in found if name.startswith(f"{_LAYER}.self_attn.")}
    quantized_names = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
    assert own == {
        *("w_uk", "w_uv", "q_a_layernorm.weight", "kv_a_layernorm.weight"),
        *(f"{name}.{kind}" for name in quantized_names for kind in ("q_weight", "q_scale")),
    }


def test_layers_that_predict_further_tokens_are_left_out_and_others_are_not(tmp_path: Path) -> None:
    _checkpoint(tmp_path / "model", before_saving=True)
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    more = {"model.layers.2.eh_proj.weight": np.zeros((64, 128), np.float32)}
    save_file(tensors | more, path)
    imported(tmp_path, tmp_path / "model", _CONFIG)
    with pytest.raises(StageError, match=r"model\.layers\.2\.eh_proj\.weight"):
        imported(tmp_path, tmp_path / "model", _CONFIG | {"num_nextn_predict_layers": 0})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("deepseek_v2", {"norm_topk_prob": True}, '"norm_topk_prob" is true'),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, '"topk_method" is "noaux_tc"'),
        ("deepseek_v2", {"moe_layer_freq": 2}, '"moe_layer_freq" is 2'),
        ("deepseek_v2", {"qk_rope_head_dim": 7}, '"qk_rope_head_dim" is 7'),
        ("deepseek_v2", {"num_key_value_heads": 2}, '"num_key_value_heads" is 2'),
        ("deepseek_v2", {"num_experts_per_tok": None}, '"num_experts_per_tok" is missing'),
        ("deepseek_v3", {"scoring_func": "softmax"}, '"scoring_func" is "softmax"'),
        ("deepseek_v3", {"n_group": 3}, '"n_group" is 3'),
        ("deepseek_v3", {"topk_group": 1}, '"topk_group" is 1'),
        ("deepseek_v3", {"first_k_dense_replace": 4}, '"first_k_dense_replace" is 4'),
        ("deepseek_v3", {"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}}, '"fmt" is "e5m2"'),
        (
            "minicpm3",
            {"v_head_dim": None, "num_attention_heads": 5, "num_key_value_heads": 5},
            '"v_head_dim" is missing',
        ),
    ],
)
def test_a_field_that_asks_for_what_is_not_computed_is_named(
    name: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(StageError, match=message):
        model_of({**CASES[name].config, **changes})
