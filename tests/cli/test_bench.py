"""`mlcbuild bench`: what is measured of a package, a library or a target, and how it is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.bench.command import BenchOptions, numbers
from mlcbuild.cli.bench.kernels import OTHER, KernelTime, kernel_times, replay_seconds
from mlcbuild.cli.bench.output import Device, Measured, MeasuredSubject, Report, document, print_report
from mlcbuild.cli.bench.roofline import roofline_svg
from mlcbuild.cli.bench.subject import subject_of_path
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from mlcbuild.cli.output.terminal import ColorChoice
from mlcbuild.compiler.kernel_description import KernelDescription
from mlcbuild.errors import UsageError
from mlcbuild.runtime.bench.workload import CallTime, Phase, Speed, Workload
from tests.cli.conftest import Snapshot

DEVICE = Device(name="NVIDIA H200", clocks="1980 MHz", driver="CUDA 13.0", threads=0, copied=4.3e12, operations=989e12)
PRODUCT = "kernel_" + "ab" * 16
LOOKUP = "kernel_" + "cd" * 16
DESCRIPTION = KernelDescription(
    operation="dequantize_matmul",
    functions=("prefill", "batch_prefill"),
    parameters=("model.layers.*.mlp.down_proj",),
    shape=(1, "n", 4096),
    matrix=(4096, 14336),
)


def _report() -> Report:
    kernels = (
        KernelTime(
            name=PRODUCT,
            text=DESCRIPTION.text(PRODUCT),
            calls=32,
            seconds=0.0105,
            bytes=32 * 45_000_000,
            operations=32 * 2 * 512 * 4096 * 14336,
        ),
        KernelTime(
            name="attention", text="attention_kv_cache_attention", calls=32, seconds=0.002, bytes=0, operations=0
        ),
        KernelTime(name=LOOKUP, text="take (cdcdcdcd)", calls=1, seconds=1e-5, bytes=1 << 30, operations=0),
        *(
            KernelTime(name=f"kernel_{number}", text=f"add ({number})", calls=1, seconds=1e-6, bytes=10, operations=0)
            for number in range(12)
        ),
    )
    prefill = Workload(phase=Phase.PREFILL, batch=1, tokens=512, context=0)
    decode = Workload(phase=Phase.DECODE, batch=16, tokens=32, context=1000)
    subject = MeasuredSubject(
        title="//models:llama-gpu",
        weights="random",
        measured=(
            Measured(speed=Speed(workload=prefill, seconds=(0.0151, 0.015, 0.0153)), kernels=kernels),
            Measured(speed=Speed(workload=decode, seconds=(0.0062, 0.0061)), kernels=kernels[1:2], replay=0.0019),
        ),
    )
    return Report(device=DEVICE, subjects=(subject,))


def _report_of_two() -> Report:
    """The second takes twice as long for prompts, and as long for a step."""
    (first,) = _report().subjects
    prefill, decode = first.measured
    slower = replace(prefill, speed=replace(prefill.speed, seconds=(0.0302, 0.0302)), kernels=())
    second = replace(first, title="dist/llama", measured=(slower, decode))
    return Report(device=DEVICE, subjects=(first, second))


@pytest.mark.parametrize("suffix", ["", "-colour"])
def test_tables_are_as_wide_as_a_terminal(suffix: str, capsys: pytest.CaptureFixture[str], snapshot: Snapshot) -> None:
    title = "//models/of/a/folder/that/is/deep:llama-3-70b-instruct-q4f16_1-sm_90a"
    long = replace(_report(), subjects=(replace(_report().subjects[0], title=title),))
    color = ColorChoice.ALWAYS if suffix else ColorChoice.NEVER
    options = GlobalOptions(environment={"COLUMNS": "80"}, color=color)
    print_report(_report(), options)
    print_report(long, options, kernels=False)
    print_report(_report_of_two(), options)
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()) <= 80
    snapshot(f"bench{suffix}", printed)


def test_names_of_kernels_are_whole_where_there_is_room(capsys: pytest.CaptureFixture[str]) -> None:
    for width in ("120", "0"):
        print_report(_report(), GlobalOptions(environment={"COLUMNS": width}))
        assert DESCRIPTION.text(PRODUCT) in capsys.readouterr().out


def test_the_chart_has_a_point_for_each_kernel_with_operations() -> None:
    root = ElementTree.fromstring(roofline_svg(_report().subjects[0], DEVICE))
    space = "{http://www.w3.org/2000/svg}"
    titles = [title.text for title in root.iter(f"{space}title")]
    assert titles == [f"{DESCRIPTION.text(PRODUCT)}: 84 %"]
    assert root.find(f"{space}polyline") is not None


def test_a_chart_without_points_has_a_roof() -> None:
    speed = _report().subjects[0].measured[0].speed
    empty = MeasuredSubject(title="<a & b>", weights="random", measured=(Measured(speed=speed, kernels=()),))
    root = ElementTree.fromstring(roofline_svg(empty, DEVICE))
    assert "<a & b> on NVIDIA H200" in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_calls_of_one_kernel_are_one_line_and_products_have_operations() -> None:
    def call(name: str, shapes: tuple[tuple[int, ...], ...], calls: int = 1, size: int = 100) -> CallTime:
        return CallTime(name=name, shapes=shapes, calls=calls, seconds=calls * 0.001, bytes=size)

    weights = ((4096, 1792), (4096, 448))
    calls = [
        call("vm.builtin.alloc_tensor", (), 5),
        call(PRODUCT, (*weights, (1, 16, 14336), (1, 16, 4096)), 2),
        call(PRODUCT, (*weights, (1, 4, 14336), (1, 4, 4096))),
        call("vm.builtin.make_shape", ()),
        call("vm.builtin.attention_kv_cache_attention_with_fused_qkv", (), size=0),
        call(LOOKUP, ((8,),)),
        call("vm.builtin.cuda_graph.run_or_capture", (), 2, size=0),
    ]
    assert replay_seconds(calls) == 0.002
    found = {each.name: each for each in kernel_times(calls, {PRODUCT: DESCRIPTION})}
    assert list(found) == [OTHER, PRODUCT, "vm.builtin.attention_kv_cache_attention_with_fused_qkv", LOOKUP]
    product = found[PRODUCT]
    assert (product.calls, product.bytes) == (3, 300)
    assert product.operations == 2 * (16 + 16 + 4) * 4096 * 14336
    assert product.text == "dequantize_matmul down_proj 4096×14336 ·×n prefill+1 (abababab)"
    assert found[LOOKUP].text == "kernel (cdcdcdcd)"
    assert found[OTHER].calls == 6


@pytest.mark.slow
@pytest.mark.parametrize("what", ["folder", "library"])
def test_a_package_and_a_library_are_measured(
    tiny_package: Path, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny_package if what == "folder" else tiny_package / "lib.so"
    chart = tmp_path / "chart.svg"
    arguments = ["bench", str(path), "--prompt", "8,20", "--batch", "1,2", "--context", "10", "--tokens", "3"]
    options = ["--rounds", "2", "--threads", "1", "--svg", str(chart), "--output", "json"]
    assert main([*arguments, *options]) == ExitCode.OK
    (told,) = json.loads(capsys.readouterr().out)["subjects"]
    assert told["weights"] == ("its own" if what == "folder" else "random")
    measured = [(each["phase"], each["batch"], each["tokens"], each["context"]) for each in told["workloads"]]
    assert measured == [
        *(("prefill", batch, prompt, 0) for batch in (1, 2) for prompt in (8, 20)),
        *(("decode", batch, 3, 10) for batch in (1, 2)),
    ]
    assert all(each["kernels"] and each["tokens_per_second"] > 0 for each in told["workloads"])
    ElementTree.fromstring(chart.read_text())


@pytest.mark.slow
def test_several_are_measured_in_turn(tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = tiny_package / "lib.so"
    arguments = ["bench", str(library), str(tiny_package), "--prompt", "8", "--context", "4", "--tokens", "11"]
    options = ["--rounds", "2", "--threads", "1", "--no-kernels", "--output", "json"]
    assert main([*arguments, *options]) == ExitCode.OK
    first, second = json.loads(capsys.readouterr().out)["subjects"]
    assert (first["subject"], second["subject"]) == (str(library), str(tiny_package))
    for workload, other in zip(first["workloads"], second["workloads"], strict=True):
        assert len(workload["seconds"]) == len(other["seconds"]) == (2 if workload["phase"] == "prefill" else 11)
        assert other["ratio"] == pytest.approx(other["tokens_per_second"] / workload["tokens_per_second"])

    assert main([*arguments, "--svg", str(tmp_path / "chart.svg")]) == ExitCode.COMMAND_LINE
    assert "a chart shows one model, and there are 2" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_no_package_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(tmp_path / "none")]) == ExitCode.COMMAND_LINE
    assert "none is not there" in capsys.readouterr().err
    assert main(["bench", str(tmp_path)]) == ExitCode.COMMAND_LINE
    assert "is no model package" in capsys.readouterr().err


def test_sizes_are_lists_of_numbers() -> None:
    assert numbers("1, 16,64", option="--batch") == (1, 16, 64)
    for given in ("0", "a", "1,-2", "1.5", "", "²"):
        with pytest.raises(UsageError, match=r"not a list of numbers|at least 1"):
            numbers(given, option="--batch")


def test_workloads_are_prompts_and_then_decodings() -> None:
    options = BenchOptions(
        batches=(1, 4), prompts=(8,), context=3, tokens=0, rounds=1, threads=0, kernels=False, svg=None
    )
    assert [(each.phase, each.batch) for each in options.workloads()] == [(Phase.PREFILL, 1), (Phase.PREFILL, 4)]


def test_the_document_has_seconds_of_all_rounds() -> None:
    subjects: Any = document(_report())["subjects"]
    prefill, decode = subjects[0]["workloads"]
    assert prefill["median_seconds"] == 0.0151
    assert decode["tokens_per_second"] == pytest.approx(16 / 0.00615)


def test_a_later_subject_is_a_share_of_the_first() -> None:
    subjects: Any = document(_report_of_two())["subjects"]
    assert [[each["ratio"] for each in subject["workloads"]] for subject in subjects] == [[1, 1], [0.5, 1]]


@pytest.mark.slow
def test_a_library_file_needs_no_weights(tiny_package: Path) -> None:
    assert subject_of_path(tiny_package / "lib.so").package is None
    assert subject_of_path(tiny_package).package == tiny_package
