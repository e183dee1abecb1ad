"""One change, and the actions that it must run: a table of single changes against the mnemonics, and no others.

A small model for a CPU and one for GPUs are built once, and one with kernels in Triton in a workspace of its own. Each
row changes one thing (a file, an attribute, a flag, a field of a platform, a tool, an environment variable, a line of
mlcbuild's own code), builds, and puts it back. mlcbuild runs from a copy of its own, whose code the rows may edit; a
tool of another content is a distribution's metadata with one line more, put in front of the installed one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.end_to_end.kernel_cache import OF_KERNELS, KernelCache
from tests.end_to_end.what_runs.build_files import BUILD_FILE, PLAIN, TRITON_BUILD_FILE
from tests.end_to_end.what_runs.edits import appended, code, example_of
from tests.end_to_end.what_runs.place import Place, new_place
from tests.end_to_end.what_runs.rows import CODE, DEVICE, READ, WEIGHTS, Edit, Row
from tests.end_to_end.what_runs.table import TABLE
from tests.end_to_end.what_runs.triton import ATTENTION, OF_ATTENTION, TRITON_TABLE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, warm_workers: Mapping[str, str], kernel_cache: KernelCache
) -> Place:
    place = new_place(tmp_path_factory.mktemp("what_runs"), warm_workers, BUILD_FILE)
    (place.root / "text").write_text("one\n")
    write_gguf(place.root / "tiny.gguf", checkpoint())
    with kernel_cache.used_by(place.root, place.folder / "cache"):
        ran = set(place.build()) | OF_KERNELS
    assert ran == {"ImportConfig", *WEIGHTS, *READ, "GenConfig", *CODE, *OF_KERNELS, "Command"}
    assert place.build() == {}
    return place


@pytest.fixture
def place(built: Place) -> Place:
    return built


@pytest.fixture(scope="module")
def with_triton(
    tmp_path_factory: pytest.TempPathFactory, warm_workers: Mapping[str, str], kernel_cache: KernelCache
) -> Place:
    """A library whose platform has kernels in Triton."""
    place = new_place(tmp_path_factory.mktemp("triton_runs"), warm_workers, TRITON_BUILD_FILE)
    with kernel_cache.used_by(place.root, place.folder / "cache"):
        ran = place.build()
    assert set(ran) | OF_KERNELS == {*READ, *CODE, *OF_KERNELS, "CompileTriton"}
    assert ran["CompileTriton"] == 2  # over keys side by side, and in pages
    assert place.build() == {}
    return place


# They compile all kernels of a library, and what they hold is held elsewhere: fingerprints of toolchains by
# tests/toolchains/test_toolchains.py and the row of another tvm, what another shape of a model reaches by the row of
# one layer more, what a target's parameters reach by the rows of a level, a processor and one architecture more.
_ONLY_BY_HAND = pytest.mark.exhaustive
_LONG = ("another tvm-ffi", "another NVRTC", "a wider model", "a quantization", "an architecture")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            change,
            id=change.name.replace(" ", "-"),
            marks=_ONLY_BY_HAND if change.name in _LONG else (),
        )
        for change in TABLE
    ],
)
def test_what_runs_after(place: Place, change: Row) -> None:
    try:
        change.edit(place)
        assert set(place.build()) == change.runs
    finally:
        place.undo()


def test_metadata_names_the_kernels_in_triton(with_triton: Place) -> None:
    kernels = json.loads(with_triton.mlcbuild("show", "//:library", "--output", "json").stdout)["kernels"]
    assert [name.split()[0] for name in kernels["triton"]] == ["batch_prefill_paged_kv", "batch_prefill_ragged_kv"]
    assert {"cuda", "tvm"} <= set(kernels)


@pytest.mark.parametrize(
    ("edit", "runs"), [pytest.param(*each[1:], id=each[0].replace(" ", "-")) for each in TRITON_TABLE]
)
def test_what_runs_of_kernels_in_triton_after(with_triton: Place, edit: Edit, runs: Mapping[str, int]) -> None:
    try:
        edit(with_triton)
        assert with_triton.build() == runs
    finally:
        with_triton.undo()


# It compiles all kernels for another architecture; that it is in the key of those in Triton, test_cuda_sources holds.
@_ONLY_BY_HAND
def test_another_architecture_compiles_kernels_in_triton_anew(with_triton: Place) -> None:
    try:
        with_triton.exchange(with_triton.root / "BUILD.toml", '["sm_80"]', '["sm_86"]')
        ran = with_triton.build()
        assert set(ran) == (CODE | DEVICE | {"CompileTriton"}) - {"Partition"}
        assert ran["CompileTriton"] == 2
    finally:
        with_triton.undo()


def test_a_library_of_others_compiles_what_calls_it_and_no_kernel(with_triton: Place) -> None:
    """Integers of four bits are not cuBLAS's, so every kernel is scheduled as without it."""
    declared = 'kernels = "triton"\nlibraries = ["cublas"]'
    try:
        with_triton.exchange(with_triton.root / "BUILD.toml", 'kernels = "triton"', declared)
        ran = with_triton.build()
        assert set(ran) == {"ScheduleKernel", "CompileLibrary", "Link"}
        assert (ran["CompileLibrary"], ran["Link"]) == (1, 1)
        of_cublas = with_triton.code / "mlcbuild/compiler/backends/cuda/libraries/cublas.py"
        with_triton.exchange(of_cublas, "put its folder into", "put the folder of it into")
        assert with_triton.build() == {"CompileLibrary": 1, "Link": 1}
    finally:
        with_triton.undo()


def test_a_function_that_a_kernel_in_triton_imports_counts(with_triton: Place) -> None:
    capped = with_triton.code / Path(ATTENTION).with_name("capped.py")
    text = (with_triton.code / ATTENTION).read_text()
    first = text.index("@triton.jit\ndef _capped(")
    end = text.index("@triton.jit", first + 1)
    head = "import triton\nimport triton.language as tl\n\n_LOG2E = tl.constexpr(1.4426950408889634)\n\n\n"
    line = "from mlcbuild.compiler.backends.cuda.triton_kernels.capped import _capped\n\n\n"
    try:
        with_triton.write(capped, f"{head}{text[first:end]}".encode())
        with_triton.write(with_triton.code / ATTENTION, f"{text[:first]}{line}{text[end:]}".encode())
        assert with_triton.build() == OF_ATTENTION
        with_triton.write(capped, f"# A comment.\n{head}{text[first:end]}".encode())
        assert with_triton.build() == {}
        with_triton.exchange(capped, "bound - 2 * bound", "bound - 3 * bound")
        assert with_triton.build() == OF_ATTENTION
    finally:
        with_triton.undo()


@pytest.mark.parametrize(
    ("module", "label", "runs"),
    [
        ("cpu/kernels/gemv", "//:package", {"ScheduleKernel"}),
        ("cuda/kernels/gemv", "//:library", {"ScheduleKernel"}),
        ("cpu/kernels/attention", "//:package", {"Phase0", "ScheduleKernel"}),
        ("cuda/kernels/attention", "//:library", {"Phase0", "ScheduleKernel"}),
        ("cuda/passes/fuse_add_rms_norm", "//:library", {"Phase1"}),
        ("cuda/passes/attach_cuda_graph", "//:library", {"Phase0", "Lower"}),
        ("cuda/stages/compile_kernel", "//:library", {"CompileKernel"}),
        ("cpu/link", "//:package", {"Link"}),
        ("cuda/link", "//:library", {"Link"}),
    ],
)
def test_code_of_one_backend_is_no_others_business(place: Place, module: str, label: str, runs: set[str]) -> None:
    try:
        code(f"compiler/backends/{module}", f"\n_OF = {label!r}\n")(place)
        assert set(place.build()) == runs
        assert place.labels == {label}
    finally:
        place.undo()


def test_a_backend_that_is_added_serves_its_own_libraries_and_runs_nothing_else(place: Place) -> None:
    try:
        example_of("toolchains.md")(place)
        example_of("backends.md")(place)
        assert place.build() == {}
        appended("BUILD.toml", PLAIN)(place)
        ran = place.build()
        # What a platform can keep is checked for each kind; equal models come of it.
        assert set(ran) == {"ConfigureModel", *CODE}
        assert place.labels == {"//:plain-package"}
        assert set(place.build("test")) == {"RunReference", "LogitsTest"}
        assert place.labels == {"//:same"}
        assert place.build("test") == {}
    finally:
        place.undo()


def test_after_all_that_was_put_back_nothing_runs(place: Place) -> None:
    assert place.build() == {}
