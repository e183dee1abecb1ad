"""A `LayerGraph` as a Python file, for JAX and for PyTorch: a line a node, and the function `model` that others call.

The files are what `stablehlo_module` and `torch_model` take as their source. They hold no weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

from mlcbuild.compiler.layer_graph.graph import Constant, LayerGraph, Node, Value

# Operator → its text, by the names of a node's fields; a, b and c are the inputs.
_SAME: dict[str, str] = {
    "add": "{a} + {b}",
    "subtract": "{a} - {b}",
    "multiply": "{a} * {b}",
    "divide": "{a} / {b}",
    "matmul": "{a} @ {b}",
    "less_equal": "{a} <= {b}",
    "greater": "{a} > {b}",
    "both": "{a} & {b}",
    "reshape": "{a}.reshape({shape})",
}
_JAX: dict[str, str] = _SAME | {
    **{name: f"jnp.{name}({{a}})" for name in ("sqrt", "tanh", "cos", "sin")},
    **{name: f"jnp.{name}({{a}}, {{b}})" for name in ("minimum", "maximum")},
    "sigmoid": "jax.nn.sigmoid({a})",
    "relu": "jax.nn.relu({a})",
    "erf": "jax.scipy.special.erf({a})",
    "softmax": "jax.nn.softmax({a}, axis=-1)",
    "mean": "jnp.mean({a}, axis=-1, keepdims=True)",
    "where": "jnp.where({a}, {b}, {c})",
    "transpose": "jnp.transpose({a}, {axes})",
    "slice": "jax.lax.slice_in_dim({a}, {begin}, {end}, axis={axis})",
    "concat": "jnp.concatenate(({all}), axis={axis})",
    "to_float": "{a}.astype(jnp.float32)",
}
_TORCH: dict[str, str] = _SAME | {
    **{name: f"torch.{name}({{a}})" for name in ("sqrt", "tanh", "cos", "sin", "sigmoid", "relu", "erf")},
    **{name: f"torch.{name}({{a}}, {{b}})" for name in ("minimum", "maximum")},
    "softmax": "torch.softmax({a}, -1)",
    "mean": "{a}.mean(-1, keepdim=True)",
    "where": "torch.where({a}, {b}, {c})",
    "transpose": "{a}.permute({axes})",
    "slice": "{a}.narrow({axis}, {begin}, {size})",
    "concat": "torch.cat(({all}), {axis})",
    "to_float": "{a}.to(hidden.dtype)",
}
_JAX_FILE = Template('''\
"""$title"""

import jax
import jax.numpy as jnp


def model():
    def compute(weights, $inputs):
$body
        return $outputs

    weights = {
$weights
    }
    return compute, weights, (
$shapes
    )
''')
_TORCH_FILE = Template('''\
"""$title"""

import torch

WEIGHTS = {
$weights
}


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, shape in WEIGHTS.items():
            module, (*path, last) = self, name.split(".")
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, torch.nn.Module())
                module = getattr(module, part)
            module.register_parameter(last, torch.nn.Parameter(torch.zeros(shape)))
$constants

    def forward(self, $inputs):
$body
        return $outputs


def model():
    return Layer(), (
$shapes
    )
''')


def jax_file(graph: LayerGraph) -> str:
    """`compute(weights, hidden, positions, past_keys, past_values)`, with weights by their names."""
    lines = [f'{weight.value.name} = weights["{weight.name}"]' for weight in graph.weights]
    lines += [
        f"{constant.value.name} = jnp.array({_numbers(constant)}, jnp.{constant.value.dtype})"
        f".reshape({constant.value.shape})"
        for constant in graph.constants
    ]
    lines += [_line(node, _JAX) for node in graph.nodes]
    return _JAX_FILE.substitute(
        title=_title(graph),
        inputs=_names(graph.inputs),
        body=_indented(lines, 8),
        outputs=_outputs(graph),
        weights=_indented(
            [f'"{weight.name}": {_jax_shape(weight.value)},' for weight in graph.weights],
            8,
        ),
        shapes=_indented([f"{_jax_shape(value)}," for value in graph.inputs], 8),
    )


def torch_file(graph: LayerGraph) -> str:
    """A module with the layer's names of parameters, and example inputs. It computes in the type of `hidden`."""
    constants = [
        f'self.register_buffer("{constant.value.name}", '
        f"torch.tensor({_numbers(constant)}, dtype=torch.{constant.value.dtype}).reshape({constant.value.shape}), "
        "persistent=False)"
        for constant in graph.constants
    ]
    lines = [f"{weight.value.name} = self.{weight.name}" for weight in graph.weights]
    lines += [f"{constant.value.name} = self.{constant.value.name}" for constant in graph.constants]
    lines += [_line(node, _TORCH) for node in graph.nodes]
    return _TORCH_FILE.substitute(
        title=_title(graph),
        inputs=_names(graph.inputs),
        constants=_indented(constants, 8),
        body=_indented(lines, 8),
        outputs=_outputs(graph),
        weights=_indented([f'"{weight.name}": {weight.value.shape},' for weight in graph.weights], 4),
        shapes=_indented(
            [f"torch.zeros({value.shape}, dtype=torch.{value.dtype})," for value in graph.inputs],
            8,
        ),
    )


def _line(node: Node, operators: Mapping[str, str]) -> str:
    a, b, c = (*node.inputs, "", "", "")[:3]
    text = operators[node.operator].format(
        a=a,
        b=b,
        c=c,
        all=", ".join(node.inputs),
        axes=node.axes,
        shape=node.shape,
        axis=node.axis,
        begin=node.begin,
        end=node.end,
        size=node.end - node.begin,
    )
    return f"{node.output.name} = {text}"


def _title(graph: LayerGraph) -> str:
    return f"{graph.prefix.removesuffix('.')} of a model of the family {graph.family}; written by mlcbuild."


def _numbers(constant: Constant) -> str:
    whole = constant.value.dtype == "int32"
    return "[" + ", ".join(str(int(number)) if whole else repr(number) for number in constant.numbers) + "]"


def _jax_shape(value: Value) -> str:
    return f"jax.ShapeDtypeStruct({value.shape}, jnp.{value.dtype})"


def _names(values: Sequence[Value]) -> str:
    return ", ".join(value.name for value in values)


def _outputs(graph: LayerGraph) -> str:
    return ", ".join(map(str, graph.outputs.values()))


def _indented(lines: Sequence[str], spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in lines)
