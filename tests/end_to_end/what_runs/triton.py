"""Changes of kernels in Triton, and how many actions of each mnemonic run after them."""

from __future__ import annotations

from tests.end_to_end.what_runs.edits import above, code, distribution, in_code
from tests.end_to_end.what_runs.rows import Edit

ATTENTION = "mlcbuild/compiler/backends/cuda/triton_kernels/attention.py"
OF_ATTENTION = {"CompileTriton": 2}
# Two kernels of the host start the two of Triton. Their names, and so those of all that calls them, tell how the
# kernels are compiled.
STARTED_OTHERWISE = {
    "Phase0": 1, "Phase1": 1, "Phase2": 1, "Phase3": 1, "Partition": 1, "ScheduleKernel": 2, "CompileKernel": 2,
    "CompileTriton": 2, "Lower": 1, "Link": 1,
}  # fmt: skip
TRITON_TABLE: tuple[tuple[str, Edit, dict[str, int]], ...] = (
    ("a comment above a kernel", above(ATTENTION, "# A comment.\n\n\n"), {}),
    ("a statement above a kernel", above(ATTENTION, "_ONE_CONSTANT_MORE = 1\n"), OF_ATTENTION),
    (
        "a kernel that computes something else",
        in_code(ATTENTION, "result = accumulated / total[:, None]", "result = accumulated / total[:, None] * 2"),
        {**OF_ATTENTION, "Link": 1},
    ),
    (
        "a constexpr",
        in_code("mlcbuild/compiler/backends/cuda/kernels/triton_attention.py", "else 64, warps=8", "else 32, warps=8"),
        STARTED_OTHERWISE,
    ),
    ("another triton", distribution("triton"), OF_ATTENTION),
    ("code of CompileTriton", code("compiler/backends/cuda/stages/compile_triton"), OF_ATTENTION),
)
