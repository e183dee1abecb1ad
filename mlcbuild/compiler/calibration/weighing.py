"""How errors of a model's matrices are added: by what they do to the hidden state.

The layers of a decoder add to a hidden state. A branch, such as a layer's attention, is the matrices below one module
(`model.layers.3.self_attn`), of which the last one writes to it. An error of 1 % in any of its matrices is, to first
order, one of 1 % in what the branch adds, and the next norm sees it relative to the hidden state there:

    weight of a matrix in a branch = E / (H + E)     E = min(energy of the branch, H)
    H behind the branch            = H + E           H before the layers = energy of the rows of tables
    weight of a table              = its rows' share in H; 1 for the only one
    weight of a head               = 1               its outputs are the model's

Each energy is a sum of squares over the tokens of the sample, and branches come in the model's order. E is at most H:
models have branches that make the hidden states of a few tokens, such as the first, a thousand times as large, and
sums of squares would then see no other token. So branches that add little may be coarse, however large their matrices
are. What is left out: errors of earlier layers are also inputs of later ones; what a branch adds may point where the
hidden state does not; and a norm behind a branch changes its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from mlcbuild.compiler.calibration.sensitivity import MeasuredParameter
from mlcbuild.compiler.models.parameter_role import ParameterRole


class Weighing:
    """Weights by what was measured of all parameters of a model, in its order, by any scheme: energies are of the
    matrices as they are."""

    def __init__(self, parameters: Iterable[MeasuredParameter]) -> None:
        branches: dict[str, float] = {}
        tables = {}
        for one in parameters:
            if one.table is not None:
                tables[one.name] = one.table.energy
            elif one.outputs is not None and one.role is not ParameterRole.FINAL_FC:
                branches[_branch(one.name)] = one.outputs.energy  # the last one's stays
        hidden = math.fsum(tables.values())
        self._weights = {name: energy / hidden if hidden else 1.0 for name, energy in tables.items()}
        for branch, energy in branches.items():
            added = min(energy, hidden or energy)
            self._weights[branch] = added / (hidden + added) if added else 1.0
            hidden += added

    def error(self, one: MeasuredParameter) -> float:
        """The error of a parameter, weighed. Where the energy of its branch is not known, its weight is 1."""
        found = []
        if one.table is not None:
            found.append(one.table.error * self._weights[one.name])
            if one.outputs is not None:
                found.append(one.outputs.error)
        elif one.outputs is not None:
            is_head = one.role is ParameterRole.FINAL_FC
            found.append(one.outputs.error * (1.0 if is_head else self._weights[_branch(one.name)]))
        return math.fsum(found)


def _branch(name: str) -> str:
    """The module that a parameter's own one is in: `model.layers.0.mlp` of `model.layers.0.mlp.down_proj.weight`."""
    return name.removesuffix(".weight").rpartition(".")[0]
