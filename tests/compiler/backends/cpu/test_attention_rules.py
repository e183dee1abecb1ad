"""Attention by the rules of a model on CPUs, against NumPy, one token after another."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from tvm.relax.frontend.nn.llm._decode_kernels import _attention_decode_cpu
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill_cpu, _attention_prefill_ragged_cpu

from mlcbuild.compiler.backends.cpu.kernels import attention
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules
from mlcbuild.compiler.script_parsing import quick_script_parsing
from tests.compiler.kernel_running import compiled, run
from tests.compiler.ruled_batch import RuledBatch
from tests.compiler.windowed_batch import merged

_HEADS = (6, 2, 32)
_RULES = [
    AttentionRules(window=12),
    AttentionRules(window=16, chunked=True),
    AttentionRules(soft_cap=5.0),
    AttentionRules(sinks=True),
    AttentionRules(alibi=True),  # in tiles, as the next
    AttentionRules(window=12, soft_cap=5.0),
    AttentionRules(window=12, soft_cap=5.0, sinks=True),  # token by token
]
_PREFILLS = [[(0, 5)], [(0, 90)], [(7, 12), (11, 1), (0, 30)], [(12, 40), (60, 13), (2, 6), (16, 16), (100, 9)]]
_DECODES = [[0, 1], [2, 11, 12, 16], [13, 39, 15, 41], [150, 5]]


@functools.cache
def _kernels(rules: AttentionRules, dtype: str) -> dict[str, Any]:
    query_heads, key_heads, dim = _HEADS
    with quick_script_parsing():
        decode = _attention_decode_cpu(key_heads, query_heads, dim, dtype, False, {})
        prefill = _attention_prefill_cpu(key_heads, query_heads, dim, dtype, False, {})
        ragged = _attention_prefill_ragged_cpu(key_heads, query_heads, dim, dim, dtype, {})
    given: Any = {"rope_scaling": {}, "rules": rules}
    return {
        "decode": compiled(attention.paged_decode(decode, **given)),
        "prefill": compiled(attention.paged_prefill(prefill, **given)),
        "ragged": compiled(attention.ragged_prefill(ragged, **given)),
    }


@pytest.mark.parametrize(
    "rules", [*(pytest.param(each, marks=pytest.mark.exhaustive) for each in _RULES[:-3]), *_RULES[-3:]], ids=str
)
@pytest.mark.parametrize("sees_less", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), pytest.param("float16", 1e-2, marks=pytest.mark.exhaustive)]
)
def test_tokens_see_what_the_rules_leave_them(
    rules: AttentionRules, sees_less: bool, dtype: str, tolerance: float
) -> None:
    if sees_less and not rules.window:
        pytest.skip("all layers of the model see all of the text")
    kernels = _kernels(rules, dtype)
    for sequences in [*_PREFILLS, *([(before, 1) for before in befores] for befores in _DECODES)]:
        batch = RuledBatch(sequences, rules, heads=_HEADS, dtype=dtype)
        numbers = (1.0, 10000.0, batch.scale_of(sees_less=sees_less))
        among = run(kernels["ragged"], batch.of_ragged(), 1, 0, *numbers)[7:]
        expected = batch.expected_of(sees_less=sees_less)
        over = [run(kernels["prefill"], batch.of_prefill(), 0, 0, *numbers)[8:]]
        if all(new == 1 for _, new in sequences):
            over.append(run(kernels["decode"], batch.of_decode(), 0, *numbers)[7:])
        for part in over:
            found = batch.query_heads(merged(among, part))
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=str(sequences))
