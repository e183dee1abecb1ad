"""`graph` → `source`: tinygrad's kernels as C++, and a function `model` that calls them; `description`: its arguments.

Needs tinygrad. Nothing is run, so it needs neither Clang nor the processor that the kernels are for.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any


def run(*, graph: Path, source: Path, description: Path, optimize: bool) -> None:
    settings = {"DEV": "CPU", "THREADS": "0", "NO_MEMORY_PLANNER": "1", "NOOPT": str(int(not optimize))}
    os.environ.update(settings)  # tinygrad reads them as it is imported.
    from tinygrad import Tensor
    from tinygrad.codegen import do_to_program
    from tinygrad.nn.onnx import OnnxRunner

    # tinygrad opens what it reads for writing too, and inputs are read-only.
    model = OnnxRunner(shutil.copyfile(graph, Path(os.environ["TMPDIR"]) / "graph.onnx"))
    for name, value in model.graph_inputs.items():
        if not all(isinstance(size, int) for size in value.shape):
            shape = ", ".join(map(str, value.shape))
            raise SystemExit(f"input {name} has the shape ({shape}): give it sizes by `sizes` of the onnx_model")
    inputs = {name: Tensor.empty(*value.shape, dtype=value.dtype) for name, value in model.graph_inputs.items()}
    try:
        outputs = {name: made.contiguous() for name, made in model(dict(inputs)).items()}
    except NotImplementedError as error:
        raise SystemExit(f"tinygrad cannot compile the model: {error}") from None
    calls = Tensor.schedule_linear(*outputs.values()).src
    arguments = [*inputs.values(), *outputs.values()]
    names = {tensor.uop.base: f"argument_{number}" for number, tensor in enumerate(arguments)}
    renderer = _renderer()
    kernels: dict[str, str] = {}
    buffers, lines = [], []
    for call in calls:
        if call.src[0].op.name != "SINK":
            raise SystemExit(f"tinygrad does not make a kernel of the model's {call.src[0].op.name}")
        for buffer in call.src[1:]:
            if buffer not in names:
                names[buffer] = f"buffer_{len(buffers)}"
                buffers.append(f"alignas(64) static {buffer.dtype.name} {names[buffer]}[{buffer.shape[0]}];")
        program = do_to_program(call.src[0], renderer)
        kernels[program.arg.function_name] = program.src[2].arg
        passed = (names[call.src[1 + number]] for number in program.arg.globals)
        lines.append(f"  {program.arg.function_name}({', '.join(passed)});")
    signature = ", ".join(f"{tensor.dtype.name}* argument_{number}" for number, tensor in enumerate(arguments))
    head = f'extern "C" void model({signature}) {{'
    source.write_text("\n".join([*kernels.values(), *buffers, head, *lines, "}", ""]))
    shapes = {"inputs": inputs, "outputs": outputs}
    told = {role: {name: list(tensor.shape) for name, tensor in each.items()} for role, each in shapes.items()}
    description.write_text(json.dumps(told) + "\n")


def _renderer() -> Any:
    from tinygrad.helpers import Target
    from tinygrad.renderer.cstyle import ClangRenderer

    class GccRenderer(ClangRenderer):  # type: ignore[misc]
        """Clang's vectors as GCC writes them. What it renders is compiled by another action."""

        def __init__(self, target: Target) -> None:
            super().__init__(target)
            self.compiler.compile = lambda _text: b""

        def render_vector_prefix(self, dtype: Any, count: int) -> str:
            clang = str(super().render_vector_prefix(dtype, count))
            return clang.replace(f"ext_vector_type({count})", f"vector_size({count * dtype.itemsize})")

    return GccRenderer(Target("CPU", "CLANG", "x86_64,x86-64-v3"))  # The text has no features of a processor in it.
