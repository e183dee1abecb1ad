"""Routers of DeepSeek's models, which may choose among the best groups of experts first.

V2's has the softmax of all experts' scores, and a group is as good as its best expert. V3's has sigmoids, to which a
correction is added for choosing alone, and a group is as good as its best two experts.
"""

from __future__ import annotations

from mlcbuild.compiler.models.architecture.mixture import ExpertGroups, RouterConfig, RouterScores
from mlcbuild.compiler.models.config import ConfigReader

_ALL, _BY_GROUPS, _CORRECTED = "greedy", "group_limited_greedy", "noaux_tc"


def read_softmax_router(reader: ConfigReader, counts: tuple[int, int]) -> RouterConfig:
    """V2's, of `counts` experts that there are and that a token uses. Raises StageError for another `topk_method`."""
    reader.refuse(scoring_func="softmax")
    method = reader.string("topk_method", default=_ALL)
    if method not in (_ALL, _BY_GROUPS):
        raise reader.fail("topk_method", f'is "{method}"; it is "{_ALL}" or "{_BY_GROUPS}" here')
    groups = _read_groups(reader, *counts, summed=1) if method == _BY_GROUPS else None
    return RouterConfig(groups=groups, scale=reader.number("routed_scaling_factor", low=1e-6, high=1e6, default=1.0))


def read_sigmoid_router(reader: ConfigReader, counts: tuple[int, int]) -> RouterConfig:
    """V3's, of `counts` experts that there are and that a token uses."""
    reader.refuse(scoring_func="sigmoid", topk_method=_CORRECTED)
    return RouterConfig(
        scores=RouterScores.SIGMOID,
        normalized=reader.boolean("norm_topk_prob", default=True),
        scale=reader.number("routed_scaling_factor", low=1e-6, high=1e6, default=2.5),
        correction_bias=True,
        groups=_read_groups(reader, *counts, summed=2),
    )


def router_fields(router: RouterConfig) -> dict[str, object]:
    """The same fields, for a `model_config`."""
    chosen_by_groups = _BY_GROUPS if router.groups else _ALL
    return {
        "norm_topk_prob": router.normalized,
        "routed_scaling_factor": router.scale,
        "scoring_func": router.scores.value,
        "topk_method": _CORRECTED if router.correction_bias else chosen_by_groups,
        "n_group": router.groups.count if router.groups else 1,
        "topk_group": router.groups.chosen if router.groups else 1,
    }


def _read_groups(reader: ConfigReader, experts: int, chosen: int, *, summed: int) -> ExpertGroups:
    """Groups of the experts, each as good as its `summed` best ones. Raises StageError for groups that are not equal,
    and for too few of them."""
    count = reader.integer("n_group", low=1, high=experts)
    if experts % count or experts // count < summed:
        raise reader.fail("n_group", f'is {count}; groups of "n_routed_experts", {experts}, have to be equal')
    best = reader.integer("topk_group", low=1, high=count)
    if best * (experts // count) < chosen:
        raise reader.fail("topk_group", f"is {best}; such groups have fewer experts than a token uses, {chosen}")
    return ExpertGroups(count=count, chosen=best, summed=summed)
