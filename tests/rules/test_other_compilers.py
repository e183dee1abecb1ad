"""Rules of other compilers: what reaches the actions, and mistakes that are told at load."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.action import CachePolicy, StageCall
from mlcbuild.errors import WorkspaceErrors
from tests.rules.world import action, analysed, write

PIN = "--hash=sha256:" + "0123456789abcdef" * 4
HEAD = """\
[workspace]
name = "test"

[[python_environment]]
name = "made"
lock = "lock.txt"
license = "MIT"

[[onnx_model]]
name = "model"
source = "model.onnx"
environment = ":made"
"""
LOCKED = ("onnx", "onnxruntime")
TORCH_FILES = {"model.py": "", "weights.safetensors": "", "gpu.txtpb": "", "dot.mojo": ""}
JAX = ("onnx", "jax", "jaxlib", "flatbuffers", "iree-base-compiler")
CUDA = (*JAX, "jax-cuda13-plugin", "jax-cuda13-pjrt")
TORCH = ("onnx", "torch", "safetensors")


def workspace(root: Path, tables: str, *, locked: tuple[str, ...] = LOCKED, head: str = HEAD) -> Path:
    lock = "".join(f"{name}==1.0 {PIN}\n" for name in locked)
    return write(
        root, {"BUILD.toml": f"{head}\n{tables}", "lock.txt": lock, "model.onnx": "", "other.txt": "", **TORCH_FILES}
    )


def errors(root: Path) -> list[str]:
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(root, "//...")
    return [str(error).splitlines()[0] for error in raised.value.errors]


def ort(more: str = "", name: str = "made") -> str:
    return f'[[ort_model]]\nname = "ort"\nmodel = ":model"\nenvironment = ":{name}"\n{more}'


@pytest.mark.parametrize(
    ("more", "toolchains", "cache"),
    [
        ("", ("processor:here", "python"), CachePolicy.ALL),
        ('processor = "x86-64-v3"', ("processor:x86-64-v3", "python"), CachePolicy.ALL),
        ('level = "extended"', ("python",), CachePolicy.ALL),
        ('format = "ort"', ("processor:here", "python"), CachePolicy.NON_REPRODUCIBLE),
    ],
)
def test_an_optimized_model_is_for_a_processor_at_the_level_all_alone(
    tmp_path: Path, more: str, toolchains: tuple[str, ...], cache: CachePolicy
) -> None:
    found = action(analysed(workspace(tmp_path, ort(more)), "//:ort"), "OptimizeOnnx")
    assert (found.toolchains, found.cache) == (toolchains, cache)
    assert isinstance(found.command, StageCall)
    assert dict(found.command.plugins) == {"program": "mlcbuild.compiler.environments.programs.optimize_onnx:run"}
    assert dict(found.command.inputs) == {"environment": "in/environment/", "model": "in/model/model.onnx"}


def test_a_processor_for_a_level_that_depends_on_none_is_told(tmp_path: Path) -> None:
    told = errors(workspace(tmp_path, ort('level = "basic"\nprocessor = "x86-64-v3"')))
    assert told == ['BUILD.toml:19:13: level "basic" does not depend on a processor in //:ort']


def test_a_compiler_that_the_lock_does_not_have_is_told(tmp_path: Path) -> None:
    assert errors(workspace(tmp_path, ort(), locked=("numpy",))) == [
        "BUILD.toml:12:15: //:made has no onnx in //:model",
    ]
    assert errors(workspace(tmp_path, ort(), locked=("onnx",))) == [
        "BUILD.toml:17:15: //:made has no onnxruntime in //:ort",
    ]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("sizes = { batch = 0 }", "BUILD.toml:13:9: the size batch = 0 is no whole number above 0 in //:model"),
        ("sizes = { batch = true }", "BUILD.toml:13:9: the size batch = True is no whole number above 0 in //:model"),
    ],
)
def test_a_size_is_a_whole_number(tmp_path: Path, table: str, told: str) -> None:
    assert errors(workspace(tmp_path, "", head=HEAD + table)) == [told]


def test_a_source_has_one_model(tmp_path: Path) -> None:
    head = HEAD.replace("model.onnx", "other.txt")
    assert errors(workspace(tmp_path, "", head=head)) == [
        "BUILD.toml:11:10: source is no files that end in .onnx in //:model"
    ]


def test_a_module_of_iree_names_its_processor_whatever_builds_it(tmp_path: Path) -> None:
    table = '[[iree_module]]\nname = "m"\nmodel = ":model"\nenvironment = ":made"\ncpu = "znver4"\n'
    locked = ("onnx", "iree-base-compiler")
    found = action(analysed(workspace(tmp_path, table, locked=locked), "//:m"), "CompileIREE")
    assert found.toolchains == ("python",)
    assert isinstance(found.command, StageCall)
    assert "--iree-llvmcpu-target-cpu=znver4" in str(dict(found.command.parameters)["flags"])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", "BUILD.toml:15:8: a module is for one device, and none is named in //:m"),
        (
            'cpu = "znver4"\nhip_target = "gfx942"',
            "BUILD.toml:15:8: a module is for one device, and cpu and hip_target is named in //:m",
        ),
        ('cpu = "zen9"', 'BUILD.toml:18:7: unknown processor "zen9" for x86_64-linux-gnu in //:m'),
        ('cpu = "znver4"\nhost = "vax"', 'BUILD.toml:19:8: libraries cannot be made for the host "vax" in //:m'),
    ],
)
def test_a_module_is_for_one_device_that_is_known(tmp_path: Path, more: str, told: str) -> None:
    table = f'[[iree_module]]\nname = "m"\nmodel = ":model"\nenvironment = ":made"\n{more}\n'
    assert errors(workspace(tmp_path, table, locked=("onnx", "iree-base-compiler"))) == [told]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('form = "blob"\nweights = "f16"', "BUILD.toml:19:11: a blob has the weights that it computes with in //:v"),
        ('precision = "bf16"', "BUILD.toml:18:13: precision is for a blob: whoever loads an ir decides it in //:v"),
        (
            'processor = "x86-64-v3"',
            "BUILD.toml:18:13: processor is for a blob: whoever loads an ir decides it in //:v",
        ),
    ],
)
def test_a_form_of_openvino_says_what_it_decides(tmp_path: Path, more: str, told: str) -> None:
    table = f'[[openvino_model]]\nname = "v"\nmodel = ":model"\nenvironment = ":made"\n{more}\n'
    assert errors(workspace(tmp_path, table, locked=("onnx", "openvino"))) == [told]


def test_a_blob_computes_in_float32_on_every_processor(tmp_path: Path) -> None:
    table = '[[openvino_model]]\nname = "v"\nmodel = ":model"\nenvironment = ":made"\nform = "blob"\n'
    found = action(analysed(workspace(tmp_path, table, locked=("onnx", "openvino")), "//:v"), "CompileOpenVINO")
    assert found.toolchains == ("processor:here", "python")
    assert isinstance(found.command, StageCall)
    assert dict(found.command.parameters) == {"precision": "f32"}


def torch(more: str = "", **changed: str) -> str:
    """A torch_model, and a library of it with `more`."""
    named = {"source": "model.py", "weights": "weights.safetensors", "function": "model", **changed}
    lines = "".join(f'{name} = "{value}"\n' for name, value in named.items())
    library = f'[[torch_aoti_library]]\nname = "l"\nmodel = ":t"\nenvironment = ":made"\n{more}\n'
    return f'[[torch_model]]\nname = "t"\nenvironment = ":made"\n{lines}\n{library}'


def test_a_library_of_torch_is_for_the_processor_that_it_names_and_made_without_weights(tmp_path: Path) -> None:
    found = analysed(workspace(tmp_path, torch('cpu = "x86-64-v3"'), locked=TORCH), "//:l")
    compiled = action(found, "CompileAOTI")
    assert compiled.toolchains == ("gxx", "python")
    assert isinstance(compiled.command, StageCall)
    assert dict(compiled.command.inputs) == {"environment": "in/environment/", "exported": "in/exported/program.pt2"}
    assert dict(compiled.command.parameters) == {"level": "x86-64-v3", "threads": 0}
    exported = action(found, "ExportTorch")
    assert isinstance(exported.command, StageCall)
    assert dict(exported.command.inputs) == {"environment": "in/environment/", "source": "in/source/model.py"}


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        (torch('cpu = "x86-64-v3"\nthreads = -1'), "threads = -1 is no number of threads in //:l"),
        (torch('cpu = "x86-64-v3"', source="other.txt"), "source is not one Python file in //:t"),
        (torch('cpu = "x86-64-v3"', weights="other.txt"), "weights has no file that ends in .safetensors in //:t"),
        (torch('cpu = "x86-64-v3"', function="a b"), '"a b" is no name of a function in //:t'),
        (torch('cpu = "znver4"'), '"znver4"'),
    ],
)
def test_a_mistake_in_a_model_of_torch_is_told_at_load(tmp_path: Path, tables: str, told: str) -> None:
    assert any(told in error for error in errors(workspace(tmp_path, tables, locked=TORCH)))


def test_a_model_of_torch_needs_torch(tmp_path: Path) -> None:
    assert "BUILD.toml:16:15: //:made has no torch and no safetensors in //:t" in errors(
        workspace(tmp_path, torch('cpu = "x86-64-v3"'))
    )


def jax(tables: str, platforms: str = '["cpu"]', more: str = "") -> str:
    module = f'[[stablehlo_module]]\nname = "s"\nenvironment = ":made"\nsource = "model.py"\nplatforms = {platforms}\n'
    return f"{module}{more}\n{tables}"


def xla(more: str = "") -> str:
    return f'[[xla_executable]]\nname = "x"\nmodel = ":s"\nenvironment = ":made"\n{more}\n'


def test_xla_has_the_processor_in_its_key_and_its_bytes_are_not_trusted(tmp_path: Path) -> None:
    found = action(analysed(workspace(tmp_path, jax(xla()), locked=JAX), "//:x"), "CompileXLA")
    assert (found.toolchains, found.cache) == (("processor:here", "python"), CachePolicy.NON_REPRODUCIBLE)
    assert isinstance(found.command, StageCall)
    assert dict(found.command.parameters) == {"level": "", "threads": 1}


def test_xla_for_a_gpu_asks_nothing_of_the_machine(tmp_path: Path) -> None:
    tables = jax(xla('gpu = "gpu.txtpb"'), platforms='["cuda", "cpu"]')
    found = action(analysed(workspace(tmp_path, tables, locked=CUDA), "//:x"), "CompileXLA")
    assert (found.toolchains, found.cache) == (("python",), CachePolicy.NON_REPRODUCIBLE)


def test_iree_takes_stablehlo_for_one_platform(tmp_path: Path) -> None:
    module = '[[iree_module]]\nname = "i"\nmodel = ":s"\nenvironment = ":made"\ncpu = "znver4"\n'
    found = action(analysed(workspace(tmp_path, jax(module), locked=JAX), "//:i"), "CompileIREE")
    assert isinstance(found.command, StageCall)
    assert dict(found.command.inputs) == {"environment": "in/environment/", "model": "in/model/model.mlirbc"}
    told = "//:s is for several platforms, and so asks its caller for the number of one in //:i"
    (error,) = errors(workspace(tmp_path, jax(module, platforms='["cpu", "cuda"]'), locked=JAX))
    assert told in error


@pytest.mark.parametrize(
    ("tables", "locked", "told"),
    [
        (jax(xla(), platforms='["cuda"]'), JAX, "//:s is not for cpu in //:x"),
        (jax(xla('gpu = "gpu.txtpb"')), CUDA, "//:s is not for cuda in //:x"),
        (jax(xla('gpu = "gpu.txtpb"'), platforms='["cuda"]'), JAX, "//:made has no jax-cuda13-plugin"),
        (jax(xla('gpu = "gpu.txtpb"\nthreads = 2'), platforms='["cuda"]'), CUDA, "threads is for a processor"),
        (jax(xla("threads = 0")), JAX, "threads = 0 is no number of threads in //:x"),
        (jax("", platforms='["npu"]'), JAX, '"npu" is no platform of JAX in //:s'),
        (jax("", more='function = "a b"'), JAX, '"a b" is no name of a function in //:s'),
    ],
)
def test_a_mistake_in_a_module_of_jax_is_told_at_load(
    tmp_path: Path, tables: str, locked: tuple[str, ...], told: str
) -> None:
    assert any(told in error for error in errors(workspace(tmp_path, tables, locked=locked)))


def test_executorch_takes_a_program_with_its_weights(tmp_path: Path) -> None:
    program = '[[torch_exported_program]]\nname = "p"\nmodel = ":t"\nenvironment = ":made"\n'
    lowered = '[[executorch_program]]\nname = "e"\nprogram = ":p"\nenvironment = ":made"\n'
    library = torch('cpu = "x86-64-v3"')
    tables = f"{library}\n{program}\n{lowered}"
    found = action(analysed(workspace(tmp_path, tables, locked=(*TORCH, "executorch")), "//:e"), "LowerExecuTorch")
    assert isinstance(found.command, StageCall)
    assert dict(found.command.inputs) == {"environment": "in/environment/", "exported": "in/exported/model.pt2"}


COMPARED = """
[[compile_comparison]]
name = "compared"
model = ":model"
builds = [":ort", ":gpu"]
environment = ":made"
"""
GPU = '[[iree_module]]\nname = "gpu"\nmodel = ":model"\nenvironment = ":made"\ncuda_target = "sm_80"\n'
RUN = ("onnx", "numpy", "onnxruntime", "iree-base-compiler", "iree-base-runtime", "apache-tvm")


def compared(builds: str, more: str = "") -> str:
    table = COMPARED.replace('":ort", ":gpu"', builds)
    return f"{ort()}\n{GPU}\n{table}{more}\n"


def test_a_comparison_is_measured_alone_on_one_machine_and_names_what_runs_each_build(tmp_path: Path) -> None:
    other = ort(name="made").replace('"ort"', '"other"')
    both = compared('":ort", ":other"')
    root = workspace(tmp_path, f"{other}\n{both}", locked=RUN)
    analysis = analysed(root, "//:compared")
    measure = action(analysis, "MeasureModels")
    assert measure.cache is CachePolicy.LOCAL
    assert measure.toolchains == ("machine:here", "python")
    assert measure.requirements.cpus > 1000
    assert isinstance(measure.command, StageCall)
    runtime = "mlcbuild.compiler.environments.runtimes.ort:load"
    assert dict(measure.command.plugins) == {"runtime_0": runtime, "runtime_1": runtime}
    assert [name for name, _ in measure.command.inputs] == ["artifact_0", "artifact_1", "cases", "environment_0"]
    models = dict(measure.command.parameters)["models"]
    assert isinstance(models, list)
    assert [(each["label"], each["compiler"], each["version"]) for each in models] == [
        ("//:ort", "ONNX Runtime", "1.0"),
        ("//:other", "ONNX Runtime", "1.0"),
    ]


@pytest.mark.parametrize(
    ("builds", "more", "locked", "told"),
    [
        ('":ort", ":gpu"', "", RUN, "//:gpu is for a device whose runtime is not measured"),
        ('":model"', "", RUN, 'which cannot be the "builds" of //:compared'),
        ('":ort"', "sizes = { batch = 8 }", RUN, "the sizes batch = 8 are no list of different whole numbers above 0"),
        ('":ort"', "sizes = { batch = [1, 1] }", RUN, "the sizes batch = [1, 1] are no list"),
        ('":ort"', "sizes = { a = [1], b = [1] }", RUN, "sizes names 2 dimensions"),
        ('":ort"', "", (*LOCKED, "iree-base-compiler"), "//:made has no numpy"),
    ],
)
def test_mistakes_in_a_comparison_are_told_at_load(
    tmp_path: Path, builds: str, more: str, locked: tuple[str, ...], told: str
) -> None:
    found = errors(workspace(tmp_path, compared(builds, more), locked=locked))
    assert any(told in each for each in found), found


def test_a_relax_module_is_for_a_processor_by_name(tmp_path: Path) -> None:
    table = '[[relax_module]]\nname = "m"\nmodel = ":model"\nenvironment = ":made"\ncpu = "x86-64-v3"\n'
    found = action(analysed(workspace(tmp_path, table, locked=RUN), "//:m"), "BuildRelax")
    assert isinstance(found.command, StageCall)
    target = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v3"}
    assert dict(found.command.parameters) == {"target": target}
    assert found.cache is CachePolicy.ALL
    (told,) = errors(workspace(tmp_path / "wrong", table.replace("x86-64-v3", "x86-64-v9"), locked=RUN))
    assert 'unknown processor "x86-64-v9"' in told


def mojo(more: str = "") -> str:
    return f'[[mojo_binary]]\nname = "m"\nsource = "dot.mojo"\nenvironment = ":made"\n{more}\n'


def test_a_program_of_mojo_names_its_processor_whatever_builds_it(tmp_path: Path) -> None:
    tables = mojo('cpu = "neoverse-n1"\nhost = "aarch64-linux-gnu"\nform = "library"')
    found = action(analysed(workspace(tmp_path, tables, locked=("onnx", "mojo-compiler")), "//:m"), "BuildMojo")
    assert found.toolchains == ("gxx", "python")
    assert isinstance(found.command, StageCall)
    parameters = dict(found.command.parameters)
    assert (parameters["form"], parameters["processor"]) == ("shared-lib", "neoverse-n1")
    assert "out/m.so" in found.outputs


@pytest.mark.parametrize(
    ("more", "locked", "told"),
    [
        ('cpu = "zen9"', ("onnx", "mojo-compiler"), 'unknown processor "zen9" for x86_64-linux-gnu in //:m'),
        ('cpu = "znver4"\nhost = "vax"', ("onnx", "mojo-compiler"), 'libraries cannot be made for the host "vax"'),
        ('cpu = "znver4"', ("onnx",), "//:made has no mojo-compiler in //:m"),
    ],
)
def test_a_mistake_in_a_program_of_mojo_is_told_at_load(
    tmp_path: Path, more: str, locked: tuple[str, ...], told: str
) -> None:
    assert any(told in error for error in errors(workspace(tmp_path, mojo(more), locked=locked)))
