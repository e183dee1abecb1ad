"""What `tune` and `tune stats` print at 80 columns, plain and in colour."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.main import main
from mlcbuild.cli.output.terminal import ColorChoice, OutputFormat
from mlcbuild.cli.tune.output import print_tuned
from mlcbuild.cli.tune.plan import TunableKernel
from mlcbuild.compiler.kernel_description import KernelDescription
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.tuning_actions import TunedLibrary
from mlcbuild.runtime.measuring.candidate_list import Argument, CandidateList
from mlcbuild.tuning.record import Outcome, Record
from mlcbuild.tuning.store import RecordStore
from tests.engine.steps import action
from tests.tuning.recorded import PLATFORM, record

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

LIBRARY = TunedLibrary(
    owner="//models:llama-3-8b-cpu",
    platform=PlatformInfo(kind="cpu", target={"kind": "llvm", "mcpu": "x86-64-v3"}),
    partition=action("//models:llama-3-8b-cpu Partition"),
)
SHAPES = tuple({"chains": chains, "rows": rows} for chains in (1, 2, 4) for rows in (1, 2, 4, 8))
COLOURS = {"": ColorChoice.NEVER, "-colour": ColorChoice.ALWAYS}


def kernel(number: int, description: KernelDescription, *, calls: int, sizes: tuple[str, ...] = ()) -> TunableKernel:
    name = f"kernel_{number:08x}{0:024x}"
    arguments = (Argument(shape=(*sizes, 4096), dtype="float16"),)
    listed = CandidateList(kernel=name, rule="cpu.gemv:2", shapes=SHAPES, arguments=arguments)
    return TunableKernel(library=LIBRARY, text=description.text(name), listed=listed, calls=calls)


def product(module: str, *matrix: int) -> KernelDescription:
    return KernelDescription(
        operation="dequantize_matmul",
        functions=("decode", "batch_decode"),
        parameters=(f"model.layers.*.{module}",),
        shape=(1, 1, matrix[0]),
        matrix=matrix,
    )


KERNELS = (
    kernel(1, KernelDescription(operation="add", shape=(1, "n", 4096)), calls=64, sizes=("n",)),
    kernel(2, product("self_attn.qkv_proj", 6144, 4096), calls=32),
    kernel(3, product("mlp.gate_up_proj", 28672, 4096), calls=32),
    kernel(
        4,
        KernelDescription(operation="fused_dequantize_" + "very_long_" * 6 + "matmul", shape=(1, 1, 8)),
        calls=1,
    ),
)


def records() -> tuple[Record, ...]:
    """One kernel has a better shape, one has none, one is measured at some sizes, and one is not."""
    default, better, broken = ((("chains", chains), ("rows", rows)) for chains, rows in ((1, 1), (2, 4), (4, 8)))
    _, tuned, untuned, _ = (each.name for each in KERNELS)
    return (
        record(kernel=tuned, shape=better, seconds=7e-5, untuned_seconds=1e-4),
        record(kernel=tuned, shape=broken, outcome=Outcome.CRASHED, message="it was killed"),
        record(kernel=untuned, shape=better, seconds=6e-4, untuned_seconds=5e-4),
        *(
            record(kernel=KERNELS[0].name, shape=default, sizes=(("n", size),), seconds=2e-6, untuned_seconds=2e-6)
            for size in (4, 32)
        ),
    )


def printed(capsys: Capture, *, color: ColorChoice, output: OutputFormat = OutputFormat.TEXT, width: int = 80) -> str:
    found: dict[str, list[Record]] = defaultdict(list)
    for each in records():
        found[each.kernel].append(each)
    before = {name: each for name, each in found.items() if name == KERNELS[1].name}
    options = GlobalOptions(environment={"COLUMNS": str(width)}, color=color)
    print_tuned(KERNELS, found, before=before, spent=3, output=output, options=options)
    return capsys.readouterr().out


@pytest.mark.parametrize("suffix", COLOURS)
def test_a_line_a_kernel_says_how_many_shapes_were_tried_and_what_the_best_gains(
    suffix: str, snapshot: Snapshot, capsys: Capture
) -> None:
    shown = printed(capsys, color=COLOURS[suffix])
    assert max(len(line) for line in shown.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()) <= 80
    snapshot(f"tune{suffix}", shown)


def test_colour_adds_no_words(capsys: Capture) -> None:
    plain, coloured = (printed(capsys, color=color) for color in COLOURS.values())
    assert coloured != plain
    assert coloured.replace("\x1b[1m", "").replace("\x1b[0m", "") == plain


def test_names_are_whole_where_there_is_room(capsys: Capture) -> None:
    for width in (120, 0):
        shown = printed(capsys, color=ColorChoice.NEVER, width=width)
        assert all(kernel.text in shown for kernel in KERNELS)


def test_the_document_says_the_same(capsys: Capture) -> None:
    document = json.loads(printed(capsys, color=ColorChoice.NEVER, output=OutputFormat.JSON))
    assert document["trials"] == 3
    gate, qkv, add, long = document["kernels"]
    assert (gate["chosen"], gate["tried"], gate["failed"]) == (None, 2, 0)
    assert (qkv["chosen"]["shape"], qkv["tried"], qkv["failed"]) == ({"chains": 2, "rows": 4}, 3, 1)
    assert (add["tried"], long["tried"], long["seconds"]) == (1, 1, 0.0)
    whole = 32 * 5e-4 + 32 * 1e-4 + 64 * 2e-6
    assert document["expected_ratio"] == pytest.approx(1 - 32 * 3e-5 / whole)
    assert qkv["share"] == pytest.approx(32 * 1e-4 / whole)


@pytest.mark.parametrize("suffix", COLOURS)
@pytest.mark.usefixtures("eighty_columns")
def test_statistics_of_records(suffix: str, tmp_path: Path, snapshot: Snapshot, capsys: Capture) -> None:
    cache = tmp_path / "cache"
    failures = tuple(
        record(kernel=KERNELS[3].name, shape=(("chains", 9),), outcome=outcome, message=f"no {number}", device="")
        for number, outcome in enumerate((Outcome.WRONG, Outcome.TIMED_OUT, Outcome.NOT_BUILT))
    )
    elsewhere = record(
        platform="cuda-sm_90a-0123456789ab", device="NVIDIA H200 141GB HBM3e", driver="CUDA 13.0, 580.95"
    )
    RecordStore.of(cache).add((*records(), *failures, elsewhere))
    assert {PLATFORM, elsewhere.platform} == set(RecordStore.of(cache).platforms())
    assert main([f"--color={COLOURS[suffix]}", "tune", "stats", "--disk-cache", str(cache)]) == 0
    snapshot(f"tune-stats-records{suffix}", capsys.readouterr().out)
