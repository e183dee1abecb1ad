"""`mlcbuild show --ir`, `--changes` and `--dump`, on real modules and machine code of both kinds of platforms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main
from mlcbuild.cli.rendering.disassembly import disassembled
from mlcbuild.cli.rendering.forms import Form, form_of
from tests.cli.library_workspace import library_workspace

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, warm_workers: Mapping[str, str]) -> Iterator[Path]:
    """A library for each kind of platform."""
    with library_workspace(tmp_path_factory.mktemp("ir"), warm_workers) as root:
        assert main(["build", "//:cpu", "//:gpu"]) == 0
        yield root


@pytest.fixture(autouse=True)
def _inside(built: Path, warm_workers: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built)
    monkeypatch.setenv("XDG_CACHE_HOME", str(built.parent / "cache"))
    for name, value in warm_workers.items():
        monkeypatch.setenv(name, value)


def shown(capsys: Capture, *arguments: str, fails: int = 0) -> str:
    capsys.readouterr()
    assert main(["show", *arguments]) == fails
    out, err = capsys.readouterr()
    return err if fails else out


def outputs(capsys: Capture, *arguments: str) -> dict[str, Any]:
    """The rendered outputs of the only action, by what follows the kernel's name."""
    (action,) = json.loads(shown(capsys, *arguments, "--ir", "--output", "json"))["actions"]
    return {each["path"][each["path"].index(".") :]: each for each in action["outputs"]}


def test_the_kernels_of_a_library_are_named_by_where_they_come_from(built: Path, capsys: Capture) -> None:
    for target, sources in (("//:cpu", {"mlcbuild"}), ("//:gpu", {"tvm"})):
        document = json.loads(shown(capsys, target, "Lower", "--output", "json"))
        assert set(document["kernels"]) == sources
        assert sum(map(len, document["kernels"].values())) == 2
        whole = shown(capsys, target, "Lower")
        for source, names in document["kernels"].items():
            listed = "".join(f"    {name}\n" for name in names)
            assert f"  {source} ×{len(names)}\n{listed}" in whole
            assert f"{len(names)} {source}" in shown(capsys, target)
    assert json.loads(shown(capsys, "//:cpu", "Link", "--output", "json"))["kernels"] is None


def test_a_module_is_shown_as_tvmscript_alone(built: Path, capsys: Capture) -> None:
    text = shown(capsys, "//:cpu", "Phase2", "--ir")
    compile(text, "module.py", "exec")
    assert "class Module:" in text
    assert "R.call_tir" in text
    assert shown(capsys, "//:cpu", "Phase2", "--ir") == text, "the second time it comes from the cache"


def test_a_kernel_for_cpus_is_shown_as_assembly(built: Path, capsys: Capture) -> None:
    (scheduled, compiled) = (
        outputs(capsys, "//:cpu", mnemonic, "scaled") for mnemonic in ("ScheduleKernel", "CompileKernel")
    )
    assert scheduled[".signature.json"]["form"] == "JSON"
    assert "T.parallel" in scheduled[".json"]["text"], scheduled[".json"]["text"]
    text = compiled[".o"]["text"]
    assert compiled[".o"]["form"] == "assembly"
    assert re.search(r"\tvfmadd\w+ .*%ymm", text), text
    assert str(built.parent) not in text
    assert not re.search(r"^\s*[0-9a-f]+:\t", text, re.MULTILINE), "addresses would differ all the time"


def test_a_kernel_for_gpus_is_shown_as_cuda_text_and_sass(built: Path, capsys: Capture) -> None:
    compiled = outputs(capsys, "//:gpu", "CompileKernel", "scaled")
    assert "__global__ void" in compiled[".cu"]["text"]
    assert compiled[".o"]["form"] == "assembly"
    assert json.loads(compiled[".launch.json"]["text"])["functions"]
    sass = outputs(capsys, "//:gpu", "CompileDevice", "scaled")[".sm_90.cubin"]
    assert sass["form"] == "SASS"
    if sass["missing"]:
        assert sass["text"] is None
        assert sass["missing"].startswith("there is no nvdisasm and no cuobjdump on this machine: pip install")
    else:
        assert "FFMA" in sass["text"]
        assert "/*0000*/" not in sass["text"]


def test_bytecode_and_several_outputs_have_headings(built: Path, capsys: Capture) -> None:
    text = shown(capsys, "//:cpu", "Lower", "--ir")
    headings = [line for line in text.splitlines() if line.startswith("# //:cpu Lower")]
    assert headings == [
        "# //:cpu Lower: out/executable.bin, bytecode of TVM's virtual machine",
        "# //:cpu Lower: out/shapes.o, assembly",
    ]
    assert "@main:" in text
    assert "vm.builtin.alloc_storage" in text


def test_what_a_phase_changed_is_a_difference_of_texts(built: Path, capsys: Capture) -> None:
    difference = shown(capsys, "//:cpu", "Phase2", "--changes")
    assert difference.startswith("--- in/module/module.json\n+++ out/module.json\n@@")
    assert "+    def fused_" in difference or "-    def increased" in difference
    colored = (main(["--color", "always", "show", "//:cpu", "Phase2", "--changes"]), capsys.readouterr().out)[1]
    assert re.sub(r"\x1b\[\d*m", "", colored) == difference
    assert "\x1b[32m+" in colored


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["//:cpu", "--ir"], "--ir needs a MNEMONIC"),
        (["//:cpu", "Partition", "--changes"], "//:cpu Partition does not make one module of another"),
        (["//:cpu", "CompileKernel", "--changes"], "actions match, but only the changes of one can be shown"),
        (["//:cpu", "Phase2", "--ir", "--build", "1"], "--ir and --build do not go together"),
        (
            ["//:cpu", "Phase2", "--ir", "--set", '//:cpu.platform="@platforms//:x86-64-v2"'],
            "no result of //:cpu Phase2",
        ),
    ],
)
def test_errors(arguments: list[str], told: str, built: Path, capsys: Capture) -> None:
    assert told in shown(capsys, *arguments, fails=2)


def test_a_missing_program_is_told_by_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcbuild.cli.rendering.disassembly.program_path", lambda _: "")
    told = disassembled(tmp_path / "x.o", Form.NATIVE)
    assert told.missing == "there is no objdump and no llvm-objdump on this machine: install binutils or llvm"
    monkeypatch.undo()
    (tmp_path / "x.o").write_bytes(b"\x7fELF nonsense")
    assert "objdump failed: " in disassembled(tmp_path / "x.o", Form.NATIVE).missing


@pytest.mark.parametrize(
    ("head", "form"),
    [
        (b'{"root_index":4,"nodes":[{"type":"None"}', Form.MODULE),
        (b'{"nodes":[]}', Form.JSON),
        (b"[1]", Form.JSON),
        (b"", Form.TEXT),
        ("ä".encode() * 3 + b"\xc3", Form.TEXT),
        (b"\xff\xfe", Form.BINARY),
        (b"a\0b", Form.BINARY),
        (b"\x50\xed\x55\xba\x01\x00", Form.FAT_BINARY),
        (b"\x7fELF" + bytes(14) + b"\x3e\x00", Form.NATIVE),
        (b"\x7fELF" + bytes(14) + b"\xbe\x00", Form.CUBIN),
    ],
)
def test_files_are_known_by_their_first_bytes(head: bytes, form: Form) -> None:
    assert form_of(head) is form


# Dumps.


def dumped(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def cached_blobs(built: Path) -> int:
    return sum(1 for path in (built.parent / "cache").rglob("cas/??/*"))


def test_all_stages_are_dumped_in_order_with_readable_names(built: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "stages"
    assert shown(capsys, "//:gpu", "--dump", str(folder)) == f"{folder}\n"
    files = dumped(folder)
    kernel = "scaled_scaled_increased-nx8-main-eb109858"
    names = [re.sub(r"twin-nx8-other-[0-9a-f]{8}", "twin", name) for name in files if kernel not in name]
    sass = ["06-CompileDevice/twin.sm_90.sass"] if any(name.endswith(".sass") for name in files) else []
    assert names == [
        "01-Phase2/module.py",
        "02-Phase3/module.py",
        "03-Partition/graph.py",
        "03-Partition/kernels/twin.py",
        "03-Partition/manifest.json",
        "04-ScheduleKernel/twin.py",
        "04-ScheduleKernel/twin.signature.json",
        "05-CompileKernel/twin.cu",
        "05-CompileKernel/twin.launch.json",
        "05-CompileKernel/twin.s",
        *sass,
        "07-Lower/executable.vm.txt",
        "07-Lower/metadata.json",
        "07-Lower/shapes.s",
        "08-Link/lib.s",
        "index.txt",
    ]
    assert files["01-Phase2/module.py"] == shown(capsys, "//:gpu", "Phase2", "--ir")
    for name in files.keys() - {"index.txt"}:
        assert f"\n  {name}\n" in files["index.txt"]


def test_phases_are_dumped_pass_by_pass_and_the_cache_keeps_nothing_of_it(
    built: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "stages"
    shown(capsys, "//:cpu", "--dump", str(folder))
    before = cached_blobs(built)
    shown(capsys, "//:cpu", "--dump", str(folder), "--passes")
    assert cached_blobs(built) == before
    files = dumped(folder)
    passes = [name.rpartition("/")[2] for name in files if name.startswith("01-Phase2/passes/")]
    assert passes == ["00-input.py", "05-AnnotateTIROpPattern.py", "07-FuseOps.py", "08-FuseTIR.py", "passes.txt"]
    assert files["01-Phase2/passes/08-FuseTIR.py"] == files["01-Phase2/module.py"]
    listing = files["01-Phase2/passes/passes.txt"].splitlines()
    assert listing[3:6] == [
        "03  LegalizeOps  changed nothing",
        "04  passes.mine:nothing  changed nothing",
        "05  AnnotateTIROpPattern",
    ]
    assert files["06-Lower/passes/00-input.py"] == files["03-Partition/graph.py"]
    assert re.search(r"06-Lower/passes/\d\d-VMShapeLower\.py", str(sorted(files)))


def test_a_dump_replaces_a_dump_and_nothing_else(built: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "stages"
    shown(capsys, "//:cpu", "--dump", str(folder))
    (folder / "leftover").write_text("")
    document = json.loads(shown(capsys, "//:cpu", "--dump", str(folder), "--output", "json"))
    assert sorted(document["files"]) == sorted(dumped(folder))
    assert [path.name for path in tmp_path.iterdir()] == ["stages"], "no temporary folder is left"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("of mine")
    assert "is not empty, and has no dump" in shown(capsys, "//:cpu", "--dump", str(tmp_path / "mine"), fails=2)
    assert dumped(tmp_path / "mine") == {"notes": "of mine"}
    assert "is not a folder" in shown(capsys, "//:cpu", "--dump", str(tmp_path / "mine/notes"), fails=2)
    assert "--passes needs --dump" in shown(capsys, "//:cpu", "--passes", fails=2)
    set_ = ("--set", '//:cpu.platform="@platforms//:x86-64-v2"')
    assert "no result of //:cpu" in shown(capsys, "//:cpu", *set_, "--dump", str(folder), fails=2)
