"""A layer of any family, exported to other compilers, computes what transformers' layer does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlcbuild.errors import StageError
from tests.compiler.exported_layers import by_torch, export, export_graph, reference
from tests.compiler.family_cases import CASES
from tests.compiler.resolving import write_resolved
from tests.compiler.windowed_cases import WINDOWED

BOUND = 1e-5
_ALL = CASES | WINDOWED
IN_CI = ("llama", "qwen3", "qwen2-yarn", "gptj", "phi-norms", "gemma2")
REFUSED = {
    "llama-dynamic": "it has rotary frequencies that depend on the length of the context",
    "baichuan-alibi": "it has ALiBi",
    "deepseek_v2": "it has latent attention",
    "llama4": "it has attention within pieces of the text",
    "bert": "layer 0 of this bert has no attention over a KV cache",
    "mamba2": "layer 0 of this mamba2 has no attention over a KV cache",
    "olmoe-clipped": "it has the operators relax.nn.softmax, expert_ranks",
}


@pytest.mark.parametrize("name", IN_CI)
def test_a_layer_computes_what_that_of_transformers_does(name: str, tmp_path: Path) -> None:
    for layer in (0, 1):  # of gemma2, the first has a window
        before, behind = reference(_ALL[name], tmp_path / "source", layer)
        weights = export(tmp_path / "source", tmp_path / "made", layer)
        found = by_torch(tmp_path / "made", weights, before).output
        assert np.abs(behind).max() > 0.5, "an output of nearly nothing would prove nothing"
        np.testing.assert_allclose(found, behind, rtol=0, atol=BOUND)


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_that_other_compilers_do_not_have_is_refused_by_what_it_has(name: str, tmp_path: Path) -> None:
    write_resolved(tmp_path, _ALL[name].config)
    with pytest.raises(StageError) as told:
        export_graph(tmp_path, 0)
    assert REFUSED[name] in told.value.message


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(_ALL))
def test_a_layer_of_each_family_is_exported_or_refused(name: str, tmp_path: Path) -> None:
    write_resolved(tmp_path, _ALL[name].config)
    if refused := refusal(tmp_path):
        assert "cannot be exported" in refused
        return
    before, behind = reference(_ALL[name], tmp_path / "source", 1)
    weights = export(tmp_path / "source", tmp_path / "made", 1)
    np.testing.assert_allclose(by_torch(tmp_path / "made", weights, before).output, behind, rtol=0, atol=BOUND)


def refusal(directory: Path) -> str:
    """Why the second layer of the model in a folder is not exported; "" where it is."""
    try:
        export_graph(directory, 1)
    except StageError as error:
        return error.message
    return ""
