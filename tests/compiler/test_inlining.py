"""Layers made once and put back in line: the same computation, in the caller's symbolic sizes."""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.models.networks.outlining import Outliner
from mlcbuild.compiler.passes.inline_private_functions import inline_private_functions
from tests.compiler.inlining import inlined


class _Layer(nn.Module):
    def __init__(self) -> None:
        self.weight = nn.Parameter((8,), "float32")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return x * self.weight


class _Model(nn.Module):
    def __init__(self, layers: int) -> None:
        self.layers = nn.ModuleList([_Layer() for _ in range(layers)])
        self.outliner = Outliner("layer")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        for layer in self.layers:
            x = self._call(layer, x)
        return x

    def _call(self, layer: _Layer, x: nn.Tensor) -> nn.Tensor:
        (result,) = self.outliner.call([layer], lambda inner: (layer(nn.Tensor(_expr=inner)),), [x._expr])
        return nn.Tensor(_expr=result)


def _exported(layers: int) -> tvm.IRModule:
    argument = nn.spec.Tensor(["rows", 8], "float32")
    mode = {"param_mode": "packed", "effect_mode": "none"}
    module, _ = _Model(layers).export_tvm({"forward": {"x": argument, "$": mode}})
    return module


def _multiplications(module: tvm.IRModule) -> int:
    return str(module["forward"]).count("R.multiply")


def test_equal_layers_are_one_private_function() -> None:
    for layers in (1, 2, 5):
        module = _exported(layers)
        assert len(module.get_global_vars()) == 2
        assert _multiplications(module) == 0


def test_two_models_share_nothing() -> None:
    first, second = _exported(2), _exported(2)
    assert not set(first.get_global_vars()) & set(second.get_global_vars())


def test_inlining_gives_every_layer_its_own_parameters() -> None:
    module = inlined(_exported(3))
    assert [str(variable.name_hint) for variable in module.get_global_vars()] == ["forward"]
    assert _multiplications(module) == 3
    text = str(module["forward"])
    assert all(f"layers_{number}_weight" in text for number in range(3))


def test_inlining_leaves_no_tuple_of_a_layers_results() -> None:
    function = inlined(_exported(3))["forward"]
    values = [binding.value for block in function.body.blocks for binding in block.bindings]
    assert not any(isinstance(value, relax.Tuple) for value in values)


def test_inlined_sizes_are_the_callers() -> None:
    module = inlined(_exported(2))
    relax.analysis.well_formed(module)
    function = module["forward"]
    (rows,) = [size for size in function.params[0].ty.shape if isinstance(size, tirx.Var)]
    for block in function.body.blocks:
        for binding in block.bindings:
            for size in getattr(binding.var.ty, "shape", None) or []:
                assert isinstance(size, tirx.IntImm) or size.same_as(rows)


def test_a_module_without_private_functions_stays_as_it_is() -> None:
    module = inline_private_functions(_exported(2))
    assert inline_private_functions(module).same_as(module)
