"""What families refuse of GGUF files, by the name of the metadata or tensor, and never by another error than that."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.models.gguf.architecture import gguf_architecture
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.gguf_parts import GGUFTensor, GGUFValue
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from tests.compiler.gguf_cases import CASES
from tests.compiler.gguf_parity import read_file
from tests.compiler.gguf_writing import file_of
from tests.compiler.resolving import model_of

# What a file can have in place of anything: other types, other signs, numbers that do not fit.
_ANYTHING: tuple[GGUFValue, ...] = (0, -1, 3, 2**63, True, 0.0, -0.5, 1e-46, 1e300, math.inf, math.nan, "", "x")
_LISTS: tuple[GGUFValue, ...] = ([], [1], ["a"], [1.5], [True], [True, False, True], [[1]])
_BY_ARCHITECTURE = {case.architecture: name for name, case in CASES.items()}


@pytest.mark.parametrize(
    ("name", "metadata", "message"),
    [
        ("gemma2", {"attention.sliding_window_pattern": [True]}, "has to say true or false for each of 4 layers"),
        ("gemma2", {"attention.sliding_window_pattern": "no"}, "has to be an integer"),
        ("gemma2", {"block_count": 1 << 31}, r"gemma2\.block_count\" is 2147483648"),
        ("gemma2", {"rope.freq_base_swa": 5.0}, "gemma2.rope.freq_base_swa is 5; here all layers have the same, 10000"),
        ("gemma3", {"attn_logit_softcapping": 2.0}, r"attn_logit_softcapping is 2; it can be 0"),
        ("gpt_oss", {"expert_weights_scale": 2.0}, "expert_weights_scale"),
        ("granitemoe", {"expert_gating_func": 2}, "expert_gating_func"),
        ("deepseek", {"expert_weights_scale": 2.0}, "expert_weights_scale is 2; it can be 1"),
        ("deepseek", {"expert_gating_func": 2}, "expert_gating_func"),
        ("llama4", {"attention.sliding_window": 16}, "has chunks of another length than 8192 tokens"),
        ("chatglm", {"rope.dimension_count": 16}, "has rotary embeddings that a ChatGLM does not have"),
        ("qwen", {"rope.scaling.factor": 2.0}, "scales RoPE, which a Qwen 1 does not"),
        ("ministral3", {"rope.scaling.type": "linear"}, "does not scale RoPE as a Ministral 3 does, by YaRN"),
        ("qwen3_5", {"rope.dimension_sections": [1, 1, 1, 0]}, r"has to be 4 numbers, by which each of 4 pairs"),
        ("qwen3_5", {"attention.recurrent_layers": [True, False]}, "has to say true or false for each of 4 layers"),
        ("qwen3_5", {"full_attention_interval": 0}, r"full_attention_interval\" is 0"),
        ("qwen3_5", {"nextn_predict_layers": 4}, "4 of 4 layers that predict further tokens cannot be"),
        ("qwen3_5", {"ssm.time_step_rank": 7}, "recurrent layers of 96 numbers for 7 heads cannot be"),
        ("granitemoehybrid-dense", {"attention.head_count_kv": [0, 2]}, "has to be one number for all of 3 layers"),
        ("granitemoehybrid-dense", {"attention.head_count_kv": [4, 2, 0]}, "has to be one number for all of 3 layers"),
        ("qwen3_next", {"nextn_predict_layers": 1}, "nextn_predict_layers is 1; it can be 0"),
        ("internlm2", {"logit_scale": 2.0}, "logit_scale is 2; it can be 0 or 1"),
    ],
)
def test_what_a_model_does_not_compute_is_refused(
    name: str, metadata: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    case = CASES[name]
    path = file_of(tmp_path / "m.gguf", replace(case, metadata={**case.metadata, **metadata}))
    with pytest.raises(StageError, match=message):
        read_file(path)


def test_of_a_baichuan_of_another_size_nobody_knows_whether_it_rotates(tmp_path: Path) -> None:
    case = CASES["baichuan"]
    path = file_of(tmp_path / "m.gguf", replace(case, config={**case.config, "num_hidden_layers": 3}))
    with pytest.raises(StageError, match="has 3 layers; of 32 it is known that they rotate, and of 40"):
        read_file(path)


def test_a_qwen3_next_of_an_older_converter_is_told(tmp_path: Path) -> None:
    fused = {"blk.0.ssm_in.weight": np.ones((192, 64), np.float32)}
    path = file_of(tmp_path / "m.gguf", replace(CASES["qwen3_next"], tensors=fused))
    with pytest.raises(StageError, match=r"is of an older llama\.cpp: it has the tensor blk\.0\.ssm_in\.weight"):
        read_file(path)


def test_factors_of_longrope_have_to_be_there_for_each_pair(tmp_path: Path) -> None:
    case = CASES["phi3-longrope"]
    factors = {"rope_factors_long.weight": np.ones(3, np.float32), "rope_factors_short.weight": np.ones(8, np.float32)}
    path = file_of(tmp_path / "m.gguf", replace(case, tensors=factors))
    with pytest.raises(StageError, match=r"rope_factors_long\.weight has 3 factors, for 8 pairs"):
        read_file(path)


def test_an_expert_that_is_missing_is_told_by_the_names_of_the_file(tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.gguf", CASES["gpt_oss"])
    content = path.read_bytes()
    path.write_bytes(content.replace(b"blk.1.ffn_up_exps.bias", b"blk.1.ffn_no_exps.bias"))
    missing, unknown = r"missing: blk\.1\.ffn_up_exps\.bias 6×96", r"unknown: blk\.1\.ffn_no_exps\.bias"
    with pytest.raises(StageError, match=rf"{missing}(.|\n)*{unknown}"):
        read_file(path)


@pytest.mark.parametrize("architecture", sorted(_BY_ARCHITECTURE))
def test_any_metadata_are_read_or_refused(architecture: str, tmp_path: Path) -> None:
    """Every key that the file has, with a value of another type, or a number that cannot be."""
    file = GGUFFile(file_of(tmp_path / "m.gguf", CASES[_BY_ARCHITECTURE[architecture]]))
    reads = gguf_architecture(file, families()).config
    own = [key for key in file.metadata if key.startswith(f"{architecture}.")]
    extra = [f"{architecture}.{key}" for key in ("attention.sliding_window_pattern", "rope.scaling.type")]
    for key in {*own, *extra}:
        kept = file.metadata.get(key)
        for value in (*_ANYTHING, *_LISTS):
            _changed(file)[key] = value
            with contextlib.suppress(StageError):
                model_of(reads(file))
        if kept is None:
            del _changed(file)[key]
        else:
            _changed(file)[key] = kept
    model_of(reads(file))
    file.close()


def _changed(file: GGUFFile) -> dict[str, Any]:
    assert isinstance(file.metadata, dict)
    return file.metadata


def test_a_tensor_of_factors_of_another_type_is_refused(tmp_path: Path) -> None:
    file = GGUFFile(file_of(tmp_path / "m.gguf", CASES["phi3-longrope"]))
    tensor = file.tensors["rope_factors_long.weight"]
    assert isinstance(tensor, GGUFTensor)
    file.tensors["rope_factors_long.weight"] = replace(tensor, type_number=1)
    with pytest.raises(StageError, match="holds no float32 numbers"):
        gguf_architecture(file, families()).config(file)
    file.close()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("deepseek_v3", "deepseek2.expert_feed_forward_length"),
        ("llama4", "llama4.expert_feed_forward_length"),
        ("gpt_oss", "gpt-oss.feed_forward_length"),
        ("granitemoehybrid", "granitehybrid.expert_shared_feed_forward_length"),
    ],
)
def test_a_size_that_is_missing_is_told_by_its_name(name: str, key: str, tmp_path: Path) -> None:
    case = CASES[name]
    sizes = dict.fromkeys(f"{part}feed_forward_length" for part in ("", "expert_", "expert_shared_"))
    path = file_of(tmp_path / "m.gguf", replace(case, metadata={**case.metadata, **sizes}))
    with pytest.raises(StageError, match=re.escape(key)):
        read_file(path)
