"""The rows of the incremental table: single changes, and the actions that must not run after each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.incremental_place import Place

Edit = Callable[[Place], None]
KERNELS = frozenset({"ScheduleKernel", "CompileKernel", "CompileDevice", "FatBinary"})
CUDA, CPU = "{0}-cuda", "{0}-cpu"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A change, told in Markdown, and the target that is built after it.

    `target` and `warm`, what was built before, name targets by the number of their model: `{0}-cuda` is the first
    model's. Their time is a share of `target`'s cold build. `never` must not run; `only`, where given, is exactly what
    runs. `edit` is None for a build with nothing to do.
    """

    name: str
    change: str
    edit: Edit | None
    note: str = ""
    target: str = CUDA
    warm: str = CUDA
    never: frozenset[str] = field(default_factory=frozenset)
    only: frozenset[str] | None = None

    def unexpected(self, ran: dict[str, int]) -> list[str]:
        """What is wrong with the mnemonics that ran, in words."""
        wrong = [f"{mnemonic} ran" for mnemonic in ran if mnemonic in self.never]
        if self.only is not None:
            wrong += [f"{mnemonic} ran" for mnemonic in ran if mnemonic not in self.only]
            wrong += [f"{mnemonic} did not run" for mnemonic in sorted(self.only - set(ran))]
        return wrong


def appended(module: str, text: str = "\n_ONE_CONSTANT_MORE = 1\n") -> Edit:
    """Text behind a module of mlcbuild's compiler; by default code that changes nothing of what is made."""

    def edit(place: Place) -> None:
        file = place.code / "mlcbuild/compiler" / f"{module}.py"
        place.write(file, file.read_text() + text)

    return edit


def code(module: str, old: str, new: str) -> Edit:
    """Other words in a module of mlcbuild's compiler."""
    return lambda place: place.exchange(place.code / "mlcbuild/compiler" / f"{module}.py", old, new)


def build_file(old: str, new: str) -> Edit:
    return lambda place: place.exchange(place.root / "BUILD.toml", old, new)


def override(name: str, value: int) -> Edit:
    return build_file('opt = "O2"', f'opt = "O2"\noverrides = {{ {name} = {value} }}')


def one_layer_more(place: Place) -> None:
    file = place.root / f"{place.models[0]}.json"
    config = json.loads(file.read_text())
    place.write(file, json.dumps({**config, "num_hidden_layers": config["num_hidden_layers"] + 1}))


def no_edit(place: Place) -> None:
    del place


def only(*mnemonics: str) -> frozenset[str]:
    return frozenset(mnemonics)


_CUT_OFF = "Its output is the same: early cutoff."
_OVERRIDE = "ConfigureModel checks them; sizes that change no kernel first matter in Lower."

ROWS: tuple[Row, ...] = (
    Row(name="nothing", change="nothing", edit=None, only=only()),
    Row(
        name="comment",
        change="a comment in a pass",
        edit=appended("passes/fuse_transpose_matmul", "\n# A comment.\n"),
        note="Keys do not contain comments.",
        only=only(),
    ),
    Row(
        name="max-batch-size",
        change="`max_batch_size = 16`",
        edit=override("max_batch_size", 16),
        note=_OVERRIDE,
        only=only("ConfigureModel", "Lower", "Link"),
    ),
    Row(
        name="context-window-size",
        change="`context_window_size = 1024`",
        edit=override("context_window_size", 1024),
        note=_OVERRIDE,
        only=only("ConfigureModel", "Lower", "Link"),
    ),
    Row(
        name="prefill-chunk-size",
        change="`prefill_chunk_size = 256`",
        edit=override("prefill_chunk_size", 256),
        note=_OVERRIDE,
        only=only("ConfigureModel", "Lower", "Link"),
    ),
    Row(
        name="phase0-equal",
        change="a pass of Phase0, with the same result",
        edit=appended("passes/attach_softmax_with_temperature"),
        note=_CUT_OFF,
        only=only("Phase0"),
    ),
    Row(
        name="phase0",
        change="a pass of Phase0: softmax in chunks of half the size",
        edit=code("backends/cuda/kernels/softmax", "\nCHUNK = 4096\n", "\nCHUNK = 2048\n"),
        note="All later phases see a different module; only softmax's two kernels are new.",
    ),
    Row(
        name="phase1-equal",
        change="a pass of Phase1, with the same result",
        edit=appended("passes/fuse_transpose_matmul"),
        note=_CUT_OFF,
        only=only("Phase1"),
    ),
    Row(
        name="phase1-name",
        change="a pass of Phase1: another name for its kernels",
        edit=code("passes/fuse_transpose_matmul", '\nNAME = "NT_matmul"\n', '\nNAME = "another_NT_matmul"\n'),
        note="Partition names kernels by their content: no kernel is new.",
        never=KERNELS,
    ),
    Row(
        name="phase1",
        change="a pass of Phase1: products summed in float16",
        edit=code("passes/fuse_transpose_matmul", '= ("float16", "bfloat16")', '= ("bfloat16",)'),
        note="Every matrix product is a different kernel.",
    ),
    Row(
        name="phase2-equal",
        change="the list of Phase2, with the same result",
        edit=appended("phases/phase2"),
        note=_CUT_OFF,
        only=only("Phase2"),
    ),
    Row(
        name="phase2",
        change="a pass of Phase2: operators are not fused",
        edit=code("passes/phase2", "tvm_pass(transform.FuseOps)", "tvm_pass(lambda: transform.FuseOps(0))"),
        note="Fused kernels are split; their parts are new.",
    ),
    Row(
        name="phase3-equal",
        change="a pass of Phase3, with the same result",
        edit=appended("passes/fuse_dequantize"),
        note=_CUT_OFF,
        only=only("Phase3"),
    ),
    Row(
        name="phase3",
        change="a pass of Phase3: the table of tokens is restored before rows are taken",
        edit=code(
            "passes/fuse_dequantize",
            "elif kernel is not None:",
            'elif kernel and "take" not in kernel.name_hint:',
        ),
        note="Two kernels instead of one.",
    ),
    Row(
        name="phase5-equal",
        change="a pass of Phase5, with the same result",
        edit=appended("passes/memory_usage"),
        note="Lower runs Phase5. " + _CUT_OFF,
        only=only("Lower"),
    ),
    Row(
        name="phase5",
        change="a pass of Phase5: it reports a byte more",
        edit=code("passes/memory_usage", "\n    total = 0\n", "\n    total = 1\n"),
        note="Lower runs Phase5.",
        only=only("Lower", "Link"),
    ),
    Row(
        name="gpu-schedule-equal",
        change="a schedule rule for GPUs, with the same result",
        edit=appended("backends/cuda/kernels/gemv"),
        note="Every kernel is scheduled again. " + _CUT_OFF,
        only=only("ScheduleKernel"),
    ),
    Row(
        name="gpu-schedule",
        change="a schedule rule for GPUs: half the warps for a matrix times a vector",
        edit=code(
            "backends/cuda/kernels/gemv", "16 if product.k > 1 << 13 else 8\n", "8 if product.k > 1 << 13 else 4\n"
        ),
        note="Every kernel is scheduled again; those that differ are compiled.",
        never=only("Partition", "Lower"),
    ),
    Row(
        name="cpu-schedule-gpu-library",
        change="a schedule rule for CPUs",
        edit=appended("backends/cpu/kernels/gemv"),
        note="The library for GPUs does not use it.",
        only=only(),
    ),
    Row(
        name="cpu-schedule",
        change="a schedule rule for CPUs, with the same result, and the library for CPUs",
        edit=appended("backends/cpu/kernels/gemv"),
        note="Every kernel is scheduled again. " + _CUT_OFF,
        target=CPU,
        warm=CPU,
        only=only("ScheduleKernel"),
    ),
    Row(
        name="quantization-q0f16",
        change="`q4f16_1` → `q0f16`",
        edit=build_file('":cuda" = "q4f16_1"', '":cuda" = "q0f16"'),
        note="Kernels without a matrix are unchanged.",
    ),
    Row(
        name="quantization-q4f32",
        change="`q4f16_1` → `q4f32_1`",
        edit=build_file('":cuda" = "q4f16_1"', '":cuda" = "q4f32_1"'),
        note="Activations become float32: most kernels differ.",
    ),
    Row(
        name="arch",
        change="`sm_90` → `sm_80`",
        edit=build_file('["sm_90"]', '["sm_80"]'),
        note="Every key from Phase0 on contains the target.",
    ),
    Row(
        name="arch-higher",
        change="one architecture more: `sm_90` and `sm_100`",
        edit=build_file('["sm_90"]', '["sm_90", "sm_100"]'),
        note="Kernels are scheduled for the lowest architecture, which is unchanged: each kernel costs a CompileDevice "
        "and a FatBinary.",
        only=only("CompileDevice", "FatBinary", "Link"),
    ),
    Row(
        name="arch-lower",
        change="one architecture more: `sm_80` and `sm_90`",
        edit=build_file('["sm_90"]', '["sm_80", "sm_90"]'),
        note="Kernels are scheduled for the lowest architecture, which changes: everything runs for sm_80. Machine "
        "code for sm_90 is compiled only for kernels whose CUDA C++ differs.",
        never=only("Export"),
    ),
    Row(
        name="layer",
        change="one layer more",
        edit=one_layer_more,
        note="Equal layers are compiled once. One kernel depends on their number: it copies the cache of all layers.",
    ),
    Row(
        name="second-model",
        change="a second model of the family",
        edit=no_edit,
        note="The share is of its own cold build; the first model's results are in the cache.",
        target="{1}-cuda",
    ),
    Row(
        name="opt-o3",
        change="`O2` → `O3`",
        edit=build_file('opt = "O2"', 'opt = "O3"'),
        note="Both levels mean the same.",
        only=frozenset(),
    ),
    Row(
        name="opt-o1",
        change="`O2` → `O1`",
        edit=build_file('opt = "O2"', 'opt = "O1"'),
        note="No CUDA graph; only Lower depends on it.",
        only=only("Lower", "Link"),
    ),
)
