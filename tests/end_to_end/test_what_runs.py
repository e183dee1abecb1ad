"""One change, and the actions that it must run: a table of single changes against the mnemonics, and no others.

A small model for a CPU and one for GPUs are built once, and one with kernels in Triton in a workspace of its own. Each
row changes one thing (a file, an attribute, a flag, a field of a platform, a tool, an environment variable, a line of
mlcbuild's own code), builds, and puts it back. mlcbuild runs from a copy of its own, whose code the rows may edit; a
tool of another content is a distribution's metadata with one line more, put in front of the installed one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import pytest

from tests.compiler.tiny_models import TINY, checkpoint, write_config, write_gguf
from tests.end_to_end.kernel_cache import OF_KERNELS, KernelCache

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
BUILD_FILE = """\
[workspace]
name = "example"

[configuration.same]

[[tool]]
name = "sh"
path = "/bin/sh"

[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v2"

[[platform]]
name = "gpu"
kind = "cuda"
arch = ["sm_80"]

[[model]]
name = "weights"
source = "tiny.gguf"

[[model]]
name = "shape"
config = "config.json"

[[model_package]]
name = "package"
model = ":weights"
quantization = "q4f32_1"
platform = ":cpu"
opt = "O2"
overrides = { context_window_size = 64, prefill_chunk_size = 16, max_batch_size = 4 }

[[model_library]]
name = "library"
model = ":shape"
quantization = "q4f16_1"
platform = ":gpu"

[[command]]
name = "noted"
tool = ":sh"
inputs = ["text"]
outputs = ["out"]
arguments = ["-c", "cat $1 > $2", "noted", "{inputs}", "{outputs}"]
"""
# A library of the backend that docs/backends.md adds, with the toolchain of docs/toolchains.md; and a check that it
# says what that of the kind cpu says.
PLAIN = """
[[platform]]
name = "plain"
kind = "plain"
cpu = "x86-64-v2"
level = 1

[[model_package]]
name = "plain-package"
model = ":weights"
quantization = "q4f32_1"
platform = ":plain"
overrides = { context_window_size = 64, prefill_chunk_size = 16, max_batch_size = 4 }

[[logits_test]]
name = "same"
package = ":plain-package"
reference = ":package"
prompts = ["a b c"]
tolerance = 0.01
"""
TRITON_BUILD_FILE = """\
[workspace]
name = "example"

[[platform]]
name = "triton"
kind = "cuda"
arch = ["sm_80"]
kernels = "triton"

[[model]]
name = "shape"
config = "config.json"

[[model_library]]
name = "library"
model = ":shape"
quantization = "q4f16_1"
platform = ":triton"
"""
IMPORT = {"ImportConfig", "ImportWeights"}
FAMILY = {"ImportConfig", "ResolveModel", "Export"}  # the stages that are given families
SIZES = {"ConfigureModel", "GenConfig", "Lower", "Link"}
READ = {"ResolveModel", "ConfigureModel", "Export"}  # whatever a model is read differently by
WEIGHTS = {"ImportWeights", "Quantize", "IndexWeights"}
PHASES = {"Phase0", "Phase1", "Phase2", "Phase3"}
KERNELS = {"ScheduleKernel", "CompileKernel"}
CODE = {*PHASES, "Partition", *KERNELS, "Lower", "Link"}
DEVICE = {"CompileDevice"}


class Place:
    """What a row may change; `undo` puts all of it back."""

    def __init__(self, folder: Path, workers: Mapping[str, str]) -> None:
        self.folder = folder
        self._workers = workers
        self.root = folder / "workspace"
        self.code = folder / "code"
        self.site = folder / "site"
        self.arguments: list[str] = []
        self.environment: dict[str, str] = {}
        self.labels: set[str] = set()
        self._before: list[tuple[Path, bytes | None, int]] = []

    def write(self, path: Path, content: bytes) -> None:
        self._before.append(
            (path, path.read_bytes() if path.exists() else None, path.stat().st_mode if path.exists() else 0)
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content)

    def exchange(self, path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {path}"
        self.write(path, text.replace(old, new).encode())

    def undo(self) -> None:
        for path, content, mode in reversed(self._before):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
                path.chmod(mode & 0o777)
        shutil.rmtree(self.site, ignore_errors=True)
        self.site.mkdir()
        self._before, self.arguments, self.environment = [], [], {}

    def build(self, command: str = "build") -> dict[str, int]:
        """Build or test everything: how many actions of each mnemonic ran; `labels` has their targets."""
        events = self.folder / "events"
        done = self.mlcbuild(command, "//...", "--events", str(events), *self.arguments)
        assert done.returncode == 0, done.stderr
        ran: dict[str, int] = {}
        self.labels = set()
        for line in events.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "action_finished" and event["status"] == "executed_local":
                ran[event["mnemonic"]] = ran.get(event["mnemonic"], 0) + 1
                self.labels.add(event["owner"])
        return ran

    def mlcbuild(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of the copy, in the workspace."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            **self._workers,
            **self.environment,
            "PYTHONPATH": f"{self.code}{os.pathsep}{self.site}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        called = [sys.executable, "-m", "mlcbuild.cli.main", *arguments]
        return subprocess.run(called, cwd=self.root, env=environment, capture_output=True, text=True, check=False)


def new_place(folder: Path, workers: Mapping[str, str], build_file: str) -> Place:
    place = Place(folder, workers)
    for created in (place.root, place.site):
        created.mkdir()
    shutil.copytree(
        PROJECT / "mlcbuild", place.code / "mlcbuild", ignore=shutil.ignore_patterns("__pycache__"), symlinks=False
    )
    (place.root / "BUILD.toml").write_text(build_file)
    write_config(place.root / "config.json")
    return place


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


Edit = Callable[[Place], None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A change, and what runs after it."""

    name: str
    edit: Edit
    runs: frozenset[str] = field(default_factory=frozenset)


def row(name: str, edit: Edit, *runs: str) -> Row:
    return Row(name=name, edit=edit, runs=frozenset(runs))


def build_file(old: str, new: str) -> Edit:
    return lambda place: place.exchange(place.root / "BUILD.toml", old, new)


def appended(path: str, text: str) -> Edit:
    """A line more in a file of the workspace."""

    def edit(place: Place) -> None:
        file = place.root / path
        place.write(file, file.read_bytes() + text.encode())

    return edit


def code(module: str, text: str = "\n_ONE_CONSTANT_MORE = 1\n") -> Edit:
    """Text behind a module of mlcbuild's own."""

    def edit(place: Place) -> None:
        file = place.code / "mlcbuild" / f"{module}.py"
        place.write(file, file.read_bytes() + text.encode())

    return edit


def distribution(name: str) -> Edit:
    """An installed distribution of another content, as far as its RECORD says."""

    def edit(place: Place) -> None:
        found = Path(str(metadata.distribution(name)._path))  # type: ignore[attr-defined]
        copy = place.site / found.name
        shutil.copytree(found, copy)
        with (copy / "RECORD").open("a") as record:
            record.write("one_file_more.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n")

    return edit


def argument(*words: str) -> Edit:
    return lambda place: place.arguments.extend(words)


def variable(name: str, value: str) -> Edit:
    return lambda place: place.environment.update({name: value})


def touched(place: Place) -> None:
    os.utime(place.root / "tiny.gguf")


def made_executable(place: Place) -> None:
    file = place.root / "tiny.gguf"
    place.write(file, file.read_bytes())
    file.chmod(0o755)


def other_weights(place: Place) -> None:
    numbers = checkpoint()
    numbers["model.norm.weight"] = numbers["model.norm.weight"] + 1
    file = place.root / "tiny.gguf"
    place.write(file, file.read_bytes())
    file.unlink()
    write_gguf(file, numbers)


def fewer_tokens(place: Place) -> None:
    """A tokenizer with fewer tokens than the model has rows."""
    import gguf

    file = place.root / "tiny.gguf"
    tokens = gguf.GGUFReader(file).fields["tokenizer.ggml.tokens"].contents()[:-9]
    types = [gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (len(tokens) - 1)]
    place.write(file, file.read_bytes())
    file.unlink()
    write_gguf(file, checkpoint(), metadata={"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types})


def config(**changes: object) -> Edit:
    def edit(place: Place) -> None:
        file = place.root / "config.json"
        place.write(file, json.dumps({**json.loads(file.read_text()), **changes}).encode())

    return edit


def reformatted(place: Place) -> None:
    file = place.root / "config.json"
    place.write(file, json.dumps(json.loads(file.read_text()), indent=4).encode())


def longer_context(place: Place) -> None:
    config(max_position_embeddings=96)(place)


def own_config(place: Place) -> None:
    """The model with weights gets a config.json of its own, which says what the file says, but for the context."""
    found = {**TINY, "max_position_embeddings": 96}
    place.write(place.root / "own.json", json.dumps(found).encode())
    build_file('source = "tiny.gguf"', 'source = "tiny.gguf"\nconfig = "own.json"')(place)


def family_added(place: Place) -> None:
    """A family that is the llama family under another name, for another model type."""
    for name in ("family", "model"):
        text = (place.code / f"mlcbuild/compiler/families/llama/{name}.py").read_text()
        text = text.replace("families.llama", "families.throwaway").replace('name="llama"', 'name="throwaway"')
        text = text.replace('model_types=("llama", "mistral")', 'model_types=("throwaway",)')
        text = text.replace('"llama": GGUFArchitecture(', '"throwaway": GGUFArchitecture(')
        place.write(place.code / f"mlcbuild/compiler/families/throwaway/{name}.py", text.encode())


def renamed_model(place: Place) -> None:
    place.write(place.root / "BUILD.toml", BUILD_FILE.replace("weights", "other").encode())


def other_docstring(place: Place) -> None:
    place.exchange(place.code / "mlcbuild/compiler/stages/phase1.py", '"""Phase1: ', '"""The second phase: ')


def example_of(page: str) -> Edit:
    """What a page of docs/ adds: each block whose first line is a comment with a path is that file."""

    def edit(place: Place) -> None:
        text = (PROJECT / "docs" / page).read_text(encoding="utf-8")
        for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            first, _, content = block.partition("\n")
            path = first.removeprefix("# ").removeprefix("mlcbuild/")
            place.write(place.code / "mlcbuild" / path, content.encode())

    return edit


TABLE = (
    # What says nothing of what is built.
    row("a comment in BUILD.toml", appended("BUILD.toml", "# A comment.\n")),
    row("another order", build_file('"q4f16_1"\nplatform = ":gpu"', '"q4f16_1"\ntags = []\nplatform = ":gpu"')),
    row("one target more", appended("BUILD.toml", '\n[[filegroup]]\nname = "more"\nsrcs = ["text"]\n')),
    row("another name", build_file('name = "package"', 'name = "renamed"')),
    row("another name of a model", renamed_model),
    row("a tag", build_file('name = "library"', 'name = "library"\ntags = ["nightly"]')),
    row("an old file touched", touched),
    row("one job", argument("--jobs", "1")),
    row("keep going", argument("--keep-going")),
    row("another configuration of the same values", argument("--config", "same")),
    row("another home", variable("HOME", "/nonexistent")),
    row("another locale", variable("LC_ALL", "C")),
    row("another time zone", variable("TZ", "<+14>-14")),
    row("another hash seed", variable("PYTHONHASHSEED", "7")),
    row("threads", variable("OMP_NUM_THREADS", "7")),
    row("another toolkit of the user's", variable("CUDA_PATH", "/opt/cuda")),
    row("another path", variable("PATH", "/usr/bin:/bin:/opt/bin")),
    row("a comment in a pass", code("compiler/passes/fuse_transpose_matmul", "\n# A comment.\n")),
    row("a docstring in a stage", other_docstring),
    row("code of the command line", code("cli/main")),
    row("code of the engine", code("engine/scheduler")),
    row("code of a rule", code("rules/model_library")),
    row("code of the workspace", code("workspace/loader")),
    row("code of the executor", code("execution/local")),
    row("code of the store", code("cache/disk")),
    row("code that runs packages", code("runtime/model")),
    row("a backend added", example_of("backends.md")),
    row("a scheme added", example_of("quantization.md")),
    row("code of a scheme that no target has", code("compiler/quantization/schemes/q0f16")),
    # Files.
    row("an executable source", made_executable, *IMPORT),
    row("other weights", other_weights, "ImportConfig", *WEIGHTS),
    row("a tokenizer of fewer tokens", fewer_tokens, *IMPORT, "GenConfig", "Lower", "Link"),
    row("a config reformatted", reformatted, "ResolveModel"),
    row("a context length", longer_context, *READ, "Lower", "Link"),
    row("a context length beside weights", own_config, *READ, "GenConfig", "Lower"),
    # One kernel has the number of layers in it: the cache's own for looking at all layers in a debugger.
    row("one layer more", config(num_hidden_layers=3), *READ, *CODE, *DEVICE),
    row("a wider model", config(intermediate_size=128), *READ, *CODE, *DEVICE),
    row("the input of a command", appended("text", "two\n"), "Command"),
    # Attributes.
    row("the arguments of a command", build_file("cat $1 > $2", "cat $1 >> $2"), "Command"),
    row("a context", build_file("context_window_size = 64", "context_window_size = 96"), *SIZES),
    row("a batch", build_file("max_batch_size = 4", "max_batch_size = 8"), *SIZES),
    row("a chunk", build_file("prefill_chunk_size = 16", "prefill_chunk_size = 32"), *SIZES),
    row("an encoding", build_file('opt = "O2"', 'opt = "O2"\nencode = "f32-to-bf16"'), "Quantize", "IndexWeights"),
    row(
        "a quantization", build_file('"q4f32_1"', '"q0f32"'),
        "ConfigureModel", "Quantize", "IndexWeights", "GenConfig", "Export", *CODE,
    ),
    # The metadata says that kernels are not scheduled.
    row("a level", build_file('opt = "O2"', 'opt = "O0"'), *KERNELS, "Lower", "Link"),
    row("a level that does the same", build_file('opt = "O2"', 'opt = "O3"')),
    row("no CUDA graph where there is none", build_file('opt = "O2"', 'opt = "O1"')),
    # Platforms.
    # Kernels are the same before they are scheduled, so that Partition, which does not know the target, does not run.
    # (With AVX-512 attention is another kernel.) No other test builds for this processor: its kernels are in no cache.
    row("a processor", build_file('cpu = "x86-64-v2"', 'cpu = "znver3"'), *CODE - {"Partition"}),
    row("an architecture", build_file('["sm_80"]', '["sm_86"]'), *CODE - {"Partition"}, *DEVICE),
    row("one architecture more", build_file('["sm_80"]', '["sm_80", "sm_90"]'), *DEVICE, "FatBinary", "Link"),
    # Tools.
    row("another tvm", distribution("apache-tvm"), "Export", *CODE - {"Link"}),
    row("another tvm-ffi", distribution("apache-tvm-ffi"), "Export", *CODE - {"Link"}),
    row("another NVRTC", distribution("nvidia-cuda-nvrtc"), *DEVICE),
    row("another numpy", distribution("numpy"), *WEIGHTS, "ImportConfig"),
    row("another gguf", distribution("gguf"), *IMPORT, "Quantize"),  # which restores blocks that it does not keep
    row("another pytest", distribution("pytest")),
    row("another triton", distribution("triton")),  # as no platform has kernels in it
    # mlcbuild's own code, changed without a change of what it makes: what follows is cut off.
    row("code of Export", code("compiler/stages/export"), "Export"),
    row("a model on TVM", code("compiler/families/llama/model"), "Export"),
    row("a shared part of models", code("compiler/models/layers/attention"), "Export"),
    row("what a family says of its models", code("compiler/families/llama/family"), *FAMILY),
    row("a family added", family_added, *FAMILY),
    row("code of ResolveModel", code("compiler/stages/resolve_model"), "ResolveModel"),
    row("code of ConfigureModel", code("compiler/stages/configure_model"), "ConfigureModel"),
    row("a pass of Phase0", code("compiler/passes/attach_softmax_with_temperature"), "Phase0"),
    row("a pass of Phase1", code("compiler/passes/fuse_transpose_matmul"), "Phase1"),
    row("the list of Phase2", code("compiler/phases/phase2"), "Phase2"),
    row("a pass of Phase3", code("compiler/passes/fuse_dequantize"), "Phase3"),
    row("code of Partition", code("compiler/passes/partition_kernels"), "Partition"),
    row("code of CompileKernel", code("compiler/stages/compile_kernel"), "CompileKernel"),
    row("code of CompileDevice", code("compiler/backends/cuda/nvrtc"), "CompileDevice"),
    row("code of Lower", code("compiler/passes/memory_usage"), "Lower"),
    row("code of Link", code("compiler/stages/link"), "Link"),
    row("code of GenConfig", code("compiler/stages/gen_config"), "GenConfig"),
    row("code of a tokenizer", code("compiler/tokenizer/from_gguf"), "ImportConfig"),
    row("a reader of weights", code("compiler/weights/gguf_weights"), *IMPORT),
    row("code of Quantize", code("compiler/stages/quantize"), "Quantize"),
    row("how NumPy quantizes", code("compiler/quantization/group/encoder"), "Quantize"),
    row("how kernels read a scheme", code("compiler/quantization/group/reader"), "Export"),
)  # fmt: skip


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


ATTENTION = "mlcbuild/compiler/backends/cuda/triton_kernels/attention.py"
OF_ATTENTION = {"CompileTriton": 2}
# Two kernels of the host start the two of Triton. Their names, and so those of all that calls them, tell how the
# kernels are compiled.
STARTED_OTHERWISE = {
    "Phase0": 1, "Phase1": 1, "Phase2": 1, "Phase3": 1, "Partition": 1, "ScheduleKernel": 2, "CompileKernel": 2,
    "CompileTriton": 2, "Lower": 1, "Link": 1,
}  # fmt: skip


def test_metadata_names_the_kernels_in_triton(with_triton: Place) -> None:
    kernels = json.loads(with_triton.mlcbuild("show", "//:library", "--output", "json").stdout)["kernels"]
    assert [name.split()[0] for name in kernels["triton"]] == ["batch_prefill_paged_kv", "batch_prefill_ragged_kv"]
    assert {"cuda", "tvm"} <= set(kernels)


def above(path: str, text: str) -> Edit:
    """Lines in front of the first function of a module of mlcbuild's own."""

    def edit(place: Place) -> None:
        before = (place.code / path).read_text()
        first = before.index("\n@triton.jit")
        place.write(place.code / path, f"{before[:first]}{text}{before[first:]}".encode())

    return edit


def in_code(path: str, old: str, new: str) -> Edit:
    return lambda place: place.exchange(place.code / path, old, new)


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
