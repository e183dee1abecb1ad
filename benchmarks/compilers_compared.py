"""The page docs/compilers-compared.md, from what `mlcbuild compare --cold --output json` printed, once a comparison.

    python -m benchmarks.compilers_compared --date 2026-01-31 mlp.json layer.json > docs/compilers-compared.md

What a compiler is like without being measured (its artifact, its devices, whether its bytes are equal in each run)
stands in a table here; tests/end_to_end/compilers holds what that table says. All figures are those of the files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.cli.compare.comparison import Case, ComparedBuild, Comparison, fastest
from mlcbuild.cli.compare.tables import as_markdown

_HEAD = """<!-- help: compared: several compilers, measured side by side -->
# Compilers compared

Which compiler to take is a question of figures. These are of [`mlcbuild compare`](other-compilers.md#compared),
as measured on {date}{note}.
`python -m benchmarks.compilers_compared` writes this page.

| compiler | rule | artifact | without the device that it is for | two runs |
|---|---|---|---|---|
"""
_COMPILE_SECONDS = (
    "Seconds to compile are those of the target's own actions, after what makes the model that it reads: for ONNX "
    "Runtime, OpenVINO, IREE and TVM, the reading of a checked ONNX file and compiling; for mlcbuild also all phases, "
    "each kernel and linking, one after the other; for XLA, AOTInductor and ExecuTorch, compiling of what jax.export "
    "and torch.export wrote; for PyTorch uncompiled, the writing of a program with its weights. The search of "
    "MetaSchedule is not among them. An empty cell was compiled before."
)
# Compiler, as `compare` calls it → what is known of it without a measurement.
_KNOWN = {
    "ONNX Runtime": (
        "ort_model",
        "`.onnx` or `.ort`, weights inside",
        "processors of another level at the levels below `all`",
        "`.onnx` equal, `.ort` not",
    ),
    "OpenVINO": (
        "openvino_model",
        "`.xml` and `.bin`, or a blob for processors of one level",
        "`.xml` is compiled when it is loaded",
        "equal",
    ),
    "IREE": (
        "iree_module",
        "`.vmfb`, weights inside",
        "any processor by name, CUDA, HIP, Vulkan, Metal",
        "equal",
    ),
    "TVM relax.build": ("relax_module", "a shared library, weights inside", "any x86-64 processor by name", "equal"),
    "TVM MetaSchedule": (
        "relax_module",
        "a shared library, weights inside",
        "any x86-64 processor by name; its records are measured on one",
        "equal, of the same records",
    ),
    "mlcbuild on TVM": (
        "onnx_library",
        "a shared library, weights beside it",
        "any processor of x86-64 or ARM by name",
        "equal",
    ),
    "AOTInductor": (
        "torch_aoti_library",
        "`.pt2` with a shared library, weights beside it",
        "processors of a level by name",
        "equal",
    ),
    "PyTorch uncompiled": ("torch_exported_program", "`.pt2`, weights inside", "all that PyTorch runs on", "equal"),
    "ExecuTorch": ("executorch_program", "`.pte`, weights inside", "all processors", "equal"),
    "XLA": (
        "xla_executable",
        "a pickle, weights beside it",
        "processors of the level of the one that builds or less; CUDA by a description of the GPU",
        "not equal",
    ),
    "MAX": ("max_model", "`.mef`, weights beside it", "no", "not equal"),
}


def page(comparisons: Sequence[Comparison], *, date: str, note: str = "") -> str:
    """The page in Markdown."""
    named = {build.compiler: build.version for each in comparisons for build in each.builds}
    lines = [_HEAD.format(date=date, note=f", {note}" if note else "").rstrip("\n")]
    for compiler, version in sorted(named.items()):
        if compiler in _KNOWN:
            rule, artifact, devices, runs = _KNOWN[compiler]
            lines.append(f"| {compiler} {version} | `{rule}` | {artifact} | {devices} | {runs} |")
        else:
            lines.append(f"| {compiler} {version} | a rule of the workspace | | | |")
    lines += ["", _COMPILE_SECONDS]
    for each in comparisons:
        lines += ["", f"## {each.label.rpartition(':')[2]}", "", *_fastest_first(each), "", as_markdown(each).rstrip()]
    return "\n".join(lines) + "\n"


def _fastest_first(comparison: Comparison) -> list[str]:
    """Two sentences a size: who is fastest, and how the others follow; who is faster than the best of TVM."""
    lines = []
    for size in comparison.sizes:
        best = fastest(comparison.builds, size)
        found = sorted(
            (case.seconds, build.compiler)
            for build in comparison.builds
            for case in build.cases
            if case.size == size and not case.failure
        )
        if found:
            rest = ", ".join(f"{compiler} {seconds / best:.1f}" for seconds, compiler in found[1:])
            after = f"; in its times: {rest}" if rest else ""
            lines.append(f"- Size {size}: {found[0][1]} is fastest, {1e6 * best:,.1f} µs{after}.{_beside_tvm(found)}")
    return lines


def _beside_tvm(found: Sequence[tuple[float, str]]) -> str:
    """A sentence on the fastest of TVM's builds; "" where there is none. `found` has the fastest first."""
    ours = next((each for each in found if each[1].startswith("TVM")), None)
    if ours is None:
        return ""
    seconds, name = ours
    faster = [f"{compiler} ({seconds / taken:.1f} ×)" for taken, compiler in found if taken < seconds]
    slower = [compiler for taken, compiler in found if taken > seconds and not compiler.startswith("TVM")]
    told = f" Faster than {name}: {', '.join(faster)}." if faster else f" Nothing is faster than {name}."
    return f"{told} Slower: {', '.join(slower)}." if slower else told


def read(document: Mapping[str, Any]) -> Comparison:
    """What `compare --output json` printed."""
    builds = tuple(
        ComparedBuild(**{**build, "cases": tuple(Case(**case) for case in build["cases"])})
        for build in document["builds"]
    )
    return Comparison(**{**document, "builds": builds})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--date", required=True, help="when it was measured")
    parser.add_argument("--note", default="", help="what a reader has to know of the machine")
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    found = [read(json.loads(file.read_text(encoding="utf-8"))) for file in given.files]
    sys.stdout.write(page(found, date=given.date, note=given.note))


if __name__ == "__main__":
    main()
