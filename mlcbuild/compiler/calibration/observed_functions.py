"""Entry functions of a model that is observed: they take what they are computed of, and the parameters that they read,
as arguments, and return a result with the inputs of matrices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.calibration.observation import GRAM_ROWS, Input, Step, gram_function
from mlcbuild.compiler.calibration.observing_reader import ObservingReader
from mlcbuild.compiler.models.networks.entry_functions import WITHOUT_PARAMETERS
from mlcbuild.compiler.models.networks.outlining import bound

Trace = Callable[[nn.Tensor, Mapping[str, nn.Object]], tuple[nn.Tensor, tuple[nn.Object, ...]]]
"""Computes hidden states of hidden states and what sequences keep, with what it has changed of that."""

_OPAQUE = 8  # TVM's number of kernels that fusion leaves alone


@dataclass(frozen=True, kw_only=True)
class _Method:
    """An entry function whose arguments are named by a list, as `nn.Module.export_tvm` asks a function for them."""

    names: tuple[str, ...]
    trace: Callable[..., object]

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.names])

    def __call__(self, *arguments: object) -> object:
        return self.trace(*arguments)


class ObservedFunctions(nn.Module):  # type: ignore[misc]
    """The functions of a model with hidden states of a size, whose layers have the `reader`. `module` makes what is
    compiled, and `steps` says of each function what it takes and returns."""

    def __init__(self, reader: ObservingReader, hidden_size: int) -> None:
        self._reader = reader
        self._hidden_size = hidden_size
        self._specification: dict[str, dict[str, object]] = {}
        self._steps: dict[str, Step] = {}

    @property
    def steps(self) -> Mapping[str, Step]:
        """Those of functions that were traced by `module`."""
        return self._steps

    def module(self) -> object:
        """All functions, and those that add up grams of what they return."""
        module, _ = self.export_tvm(spec=self._specification)
        widths = {each.width for step in self._steps.values() for each in step.inputs}
        module.update(_Grams(sorted(widths)).export())
        return module

    def add_creation(
        self, name: str, specification: dict[str, object], create: Callable[[tuple[tirx.Var, ...]], object]
    ) -> None:
        """A function that makes what sequences keep, of integers."""
        names = tuple(argument for argument in specification if argument != "$")
        setattr(self, name, _Method(names=names, trace=lambda *sizes: create(sizes)))
        self._specification[name] = specification

    def add(
        self, name: str, parameters: Mapping[str, nn.Parameter], trace: Trace, *, kept: Mapping[str, object]
    ) -> None:
        """A function of hidden states (1, n, hidden), of what is `kept`, by the types of objects, and of
        `parameters`, by their names."""
        own = ["hidden", *kept]
        passed = [f"weight_{place}" for place in range(len(parameters))]

        def method(*arguments: nn.Tensor) -> object:
            given, weights = arguments[: len(own)], arguments[len(own) :]
            self._reader.observed.clear()
            with bound(list(parameters.values()), [weight._expr for weight in weights]):
                hidden, state = trace(given[0], dict(zip(kept, given[1:], strict=True)))
            observed = list(self._reader.observed)
            self._reader.observed.clear()
            self._steps[name] = Step(
                parameters=tuple(parameters),
                inputs=tuple(Input(matrices=tuple(names), width=int(x.shape[-1])) for x, names in observed),
            )
            rows = [nn.op.reshape(x, (-1, int(x.shape[-1]))) for x, _ in observed]
            return (hidden, *rows, *state)

        setattr(self, name, _Method(names=(*own, *passed), trace=method))
        specification: dict[str, object] = {"hidden": nn.spec.Tensor([1, "seq_len", self._hidden_size], "float32")}
        specification |= {argument: nn.spec.Object(object_type=kind) for argument, kind in kept.items()}
        for argument, parameter in zip(passed, parameters.values(), strict=True):
            specification[argument] = nn.spec.Tensor(list(map(int, parameter.shape)), str(parameter.dtype))
        self._specification[name] = {**specification, "$": WITHOUT_PARAMETERS}


def parameters_below(module: nn.Module, prefix: str, called: str = "") -> dict[str, nn.Parameter]:
    """The parameters of a module whose names begin with a prefix, by their names, with another prefix if they are
    `called` by one."""
    return {
        (called or prefix) + name.removeprefix(prefix): parameter
        for name, parameter in module.named_parameters()
        if name.startswith(prefix)
    }


class _Grams(nn.Module):  # type: ignore[misc]
    """The functions that add rows to grams. A product of rows that are turned first is one that every backend has a
    kernel for."""

    def __init__(self, widths: Sequence[int]) -> None:
        self._widths = tuple(widths)

    def export(self) -> object:
        specification: dict[str, dict[str, object]] = {}
        for width in self._widths:
            name = gram_function(width)
            setattr(self, name, _Method(names=("gram", "rows"), trace=_added))
            specification[name] = {
                "gram": nn.spec.Tensor([width, width], "float32"),
                "rows": nn.spec.Tensor([GRAM_ROWS, width], "float32"),
                "$": WITHOUT_PARAMETERS,
            }
        return self.export_tvm(spec=specification)[0]


def _added(gram: nn.Tensor, rows: nn.Tensor) -> nn.Tensor:
    turned = nn.op.tensor_expr_op(_turned, "turn_rows", [rows], attrs={"op_pattern": _OPAQUE})
    return gram + nn.op.matmul(turned, nn.op.permute_dims(turned))


def _turned(rows: te.Tensor) -> te.Tensor:
    return te.compute((rows.shape[1], rows.shape[0]), lambda column, row: rows[row, column], name="turned")
