"""How errors of a model's matrices are added: by what they do to the hidden state.

The layers of a decoder add to a hidden state. A branch, such as a layer's attention, is the matrices below one module
(`model.layers.3.self_attn`), of which the last one writes to it. An error of 1 % in any of its matrices is, to first
order, one of 1 % in what the branch adds. How much that is of the hidden state behind all layers is the share of the
branch's energy in that of all branches and of the embedding:

    weight of a matrix in a branch = energy of the branch / H        H = Σ energies of branches and tables
    weight of a table              = energy of its rows / H
    weight of a head               = 1                               its outputs are the model's

Each energy is a sum of squares over the tokens of the sample. So branches that add little may be coarse, however large
their matrices are. What is left out: errors of earlier layers are also inputs of later ones; what a branch adds may
point where the hidden state does not; and a norm behind a branch changes its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from mlcbuild.compiler.calibration.sensitivity import MeasuredParameter
from mlcbuild.compiler.models.parameter_role import ParameterRole


class Weighing:
    """Weights by what was measured of all parameters of a model, in its order, by any scheme: energies are of the
    matrices as they are."""

    def __init__(self, parameters: Iterable[MeasuredParameter]) -> None:
        branches: dict[str, float] = {}
        tables = []
        for one in parameters:
            if one.table is not None:
                tables.append(one.table.energy)
            elif one.outputs is not None and one.role is not ParameterRole.FINAL_FC:
                branches[_branch(one.name)] = one.outputs.energy  # the last one's stays
        total = math.fsum((*branches.values(), *tables))
        self._branches: Mapping[str, float] = branches
        self._total = total

    def error(self, one: MeasuredParameter) -> float:
        """The error of a parameter, weighed. Where the energy of its branch is not known, its weight is 1."""
        found = []
        if one.table is not None:
            found.append(one.table.error * self._share(one.table.energy))
            if one.outputs is not None:
                found.append(one.outputs.error)
        elif one.outputs is not None:
            is_head = one.role is ParameterRole.FINAL_FC
            weight = 1.0 if is_head else self._share(self._branches[_branch(one.name)])
            found.append(one.outputs.error * weight)
        return math.fsum(found)

    def _share(self, energy: float) -> float:
        return energy / self._total if energy and self._total else 1.0


def _branch(name: str) -> str:
    """The module that a parameter's own one is in: `model.layers.0.mlp` of `model.layers.0.mlp.down_proj.weight`."""
    return name.removesuffix(".weight").rpartition(".")[0]
