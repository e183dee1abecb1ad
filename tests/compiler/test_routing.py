"""Who is chosen, and with which weights: against transformers' own routers, and where scores are equal."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax.frontend import nn

from mlcbuild.compiler.models.architecture.mixture import ExpertGroups, MixtureConfig, RouterConfig, RouterScores
from mlcbuild.compiler.models.layers import routing
from tests.compiler.kernel_running import TARGET, Array

_EXPERTS, _CHOSEN = 8, 3


class _Router(nn.Module):
    def __init__(self, config: MixtureConfig) -> None:
        self.config = config

    def forward(self, logits: nn.Tensor, correction: nn.Tensor) -> tuple[nn.Tensor, ...]:
        used = correction if self.config.router.correction_bias else None
        choice = routing.choose(logits, used, self.config)
        order = routing.ordered(choice.experts, self.config)
        return *choice, *order


@functools.cache
def _built(config: MixtureConfig) -> Any:
    spec = {
        "forward": {
            "logits": nn.spec.Tensor(["tokens", config.experts], "float32"),
            "correction": nn.spec.Tensor([config.experts], "float32"),
            "$": {"param_mode": "none", "effect_mode": "none"},
        }
    }
    module, _ = _Router(config).export_tvm(spec=spec)
    built = relax.build(relax.transform.LegalizeOps()(module), TARGET, exec_mode="bytecode")
    return relax.VirtualMachine(built, tvm.cpu())


def _routed(config: MixtureConfig, logits: Array, correction: Array | None = None) -> list[Array]:
    """Experts, weights, and the order: experts, numbers and places."""
    added = np.zeros(config.experts, np.float32) if correction is None else correction
    return [tensor.numpy() for tensor in _built(config)["forward"](*map(tvm.runtime.tensor, (logits, added)))]


def _config(router: RouterConfig, chosen: int = _CHOSEN) -> MixtureConfig:
    return MixtureConfig(experts=_EXPERTS, experts_per_token=chosen, intermediate_size=4, router=router)


def _logits(tokens: int = 9) -> Array:
    return np.random.default_rng(0).standard_normal((tokens, _EXPERTS)).astype(np.float32)


def _by_expert(experts: Array, weights: Array) -> Array:
    """The weights (tokens, experts), zero for those who are not chosen."""
    found = np.zeros((len(experts), _EXPERTS), np.float32)
    np.put_along_axis(found, experts, weights, axis=1)
    return found


def _reference(router: Any, logits: Array) -> Array:
    """The weights of one of transformers' routers, whose matrix becomes the identity, and its bias zero."""
    import torch

    with torch.no_grad():
        router.weight.copy_(torch.eye(_EXPERTS))
        if getattr(router, "bias", None) is not None:
            router.bias.zero_()
        given = torch.from_numpy(logits)
        _, weights, experts = router(given)
    return _by_expert(experts.numpy(), weights.float().numpy())


def _router(name: str, **changes: Any) -> Any:
    """The router of a model of transformers."""
    import importlib

    import transformers

    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    prefix = {"mixtral": "Mixtral", "qwen2_moe": "Qwen2Moe", "granitemoe": "GraniteMoe", "gpt_oss": "GptOss"} | {
        "deepseek_v2": "DeepseekV2",
        "deepseek_v3": "DeepseekV3",
        "phimoe": "Phimoe",
    }
    sizes = dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "hidden_size"), _EXPERTS)
    config = getattr(transformers, f"{prefix[name]}Config")()
    for field, value in {**sizes, "num_experts_per_tok": _CHOSEN, **changes}.items():
        setattr(config, field, value)
    kind = next(getattr(module, each) for each in dir(module) if each.lower() == f"{prefix[name].lower()}topkrouter")
    return kind(config).eval()


@pytest.mark.parametrize(
    ("name", "changes", "router", "chosen"),
    [
        ("mixtral", {}, RouterConfig(normalized=True), 3),
        ("granitemoe", {}, RouterConfig(normalized=True), 3),
        pytest.param("gpt_oss", {}, RouterConfig(normalized=True, bias=True), 3, marks=pytest.mark.exhaustive),
        ("qwen2_moe", {"norm_topk_prob": False}, RouterConfig(), 3),
        ("qwen2_moe", {"norm_topk_prob": True}, RouterConfig(normalized=True), 3),
        pytest.param(
            "deepseek_v2",
            {"topk_method": "greedy", "routed_scaling_factor": 2.5},
            RouterConfig(scale=2.5),
            3,
            marks=pytest.mark.exhaustive,
        ),
        (
            "deepseek_v2",
            {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.0},
            RouterConfig(groups=ExpertGroups(count=4, chosen=2)),
            3,
        ),
        (
            "phimoe",
            {"num_experts_per_tok": 2, "router_jitter_noise": 0.3},
            RouterConfig(scores=RouterScores.SPARSE_MIXER, near=0.3),
            2,
        ),
    ],
    ids=["mixtral", "granitemoe", "gpt_oss", "qwen2_moe", "normalized", "deepseek_v2", "groups", "phimoe"],
)
def test_weights_are_those_of_transformers(
    name: str, changes: dict[str, Any], router: RouterConfig, chosen: int
) -> None:
    logits = _logits()
    expected = _reference(_router(name, **changes), logits)
    experts, weights, *_ = _routed(_config(router, chosen), logits)
    np.testing.assert_allclose(_by_expert(experts, weights), expected, rtol=1e-5, atol=1e-7)


def test_a_correction_chooses_and_does_not_weigh() -> None:
    import torch

    changes = {"n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5}
    theirs = _router("deepseek_v3", **changes)
    correction = np.random.default_rng(1).standard_normal(_EXPERTS).astype(np.float32)
    theirs.e_score_correction_bias = torch.from_numpy(correction)
    router = RouterConfig(
        scores=RouterScores.SIGMOID,
        normalized=True,
        scale=2.5,
        correction_bias=True,
        groups=ExpertGroups(count=4, chosen=2, summed=2),
    )
    experts, weights, *_ = _routed(_config(router), _logits(), correction)
    np.testing.assert_allclose(_by_expert(experts, weights), _reference(theirs, _logits()), rtol=1e-5, atol=1e-7)


def test_one_expert_by_a_sigmoid() -> None:
    """Llama 4's: the largest logit, and its sigmoid."""
    logits = _logits()
    experts, weights, *_ = _routed(_config(RouterConfig(scores=RouterScores.SIGMOID), 1), logits)
    np.testing.assert_array_equal(experts[:, 0], logits.argmax(axis=1))
    np.testing.assert_allclose(weights[:, 0], 1 / (1 + np.exp(-logits.max(axis=1))), rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(-2, 2), min_size=_EXPERTS, max_size=_EXPERTS), min_size=1, max_size=12))
def test_ties_are_won_by_the_lower_number_and_rows_are_in_the_order_of_their_experts(rows: list[list[int]]) -> None:
    logits = np.array(rows, np.float32)
    experts, weights, in_order, numbers, places = _routed(_config(RouterConfig(normalized=True)), logits)
    np.testing.assert_array_equal(experts, np.argsort(-logits, axis=1, kind="stable")[:, :_CHOSEN])
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    expected = np.argsort(experts.reshape(-1), kind="stable")
    np.testing.assert_array_equal(numbers.reshape(-1), expected)
    np.testing.assert_array_equal(in_order.reshape(-1), experts.reshape(-1)[expected])
    np.testing.assert_array_equal(places.reshape(-1)[expected], np.arange(expected.size))


def test_scores_that_are_no_numbers_choose_experts_that_exist() -> None:
    logits = _logits(4)
    logits[1] = np.nan
    logits[2, 3] = np.inf
    experts, *_ = _routed(_config(RouterConfig()), logits)
    assert experts.min() >= 0
    assert experts.max() < _EXPERTS


@pytest.mark.parametrize("changes", [{"experts_per_token": 9}, {"experts_per_token": 0}])
def test_more_experts_than_there_are_cannot_be_chosen(changes: dict[str, Any]) -> None:
    fields: Any = {"experts": 8, "experts_per_token": 2, "intermediate_size": 4, "router": RouterConfig()}
    with pytest.raises(ValueError, match="cannot be chosen"):
        MixtureConfig(**fields | changes)
    with pytest.raises(ValueError, match="3 of 3 groups"):
        _config(RouterConfig(groups=ExpertGroups(count=3, chosen=3)))
