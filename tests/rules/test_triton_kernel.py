"""`triton_kernel`: what libraries are given of it, and mistakes, told at their places."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest

from mlcbuild.engine.action import StageCall
from mlcbuild.errors import WorkspaceErrors
from tests.compiler.tiny_models import TINY
from tests.rules.world import action, analysed, write

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def scaled(x, y, n, BLOCK: tl.constexpr):
    pass


def plain(x):
    pass
"""
TARGET = """\
[[triton_kernel]]
name = "scaled"
function = "kernels.own:scaled"
pattern = "multiply(x, x)"
output = "y"
signature = { x = "*fp16:16", y = "*fp16", n = "i32" }
constexprs = { BLOCK = 64 }
arguments = { n = "size(x)" }
grid = ["cdiv(size(x), BLOCK)"]
"""
LIBRARY = """
[[model]]
name = "model"
config = "config.json"

[[platform]]
name = "gpu"
kind = "cuda"
arch = ["sm_90"]
kernels = "triton"

[[platform]]
name = "portable"
kind = "cuda"
arch = ["sm_90"]

[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v3"

[[model_library]]
name = "library"
model = ":model"
quantization = "q4f16_1"
platform = ":gpu"
triton_kernels = [":scaled"]
"""


def workspace(root: Path, text: str) -> Path:
    return write(root, {"a/BUILD.toml": text, "a/config.json": json.dumps(TINY), "kernels/own.py": KERNEL})


def mistakes(root: Path, text: str) -> list[str]:
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(workspace(root, text), "//a:all")
    return str(raised.value).splitlines()


def test_a_library_hands_its_kernels_to_phase1_alone(tmp_path: Path) -> None:
    analysis = analysed(workspace(tmp_path, TARGET + LIBRARY), "//a:library")
    for each in analysis.actions:
        assert isinstance(each.command, StageCall)
        told = dict(each.command.parameters).get("triton_kernels")
        if each.mnemonic != "Phase1":
            assert told is None
            continue
        assert told == [
            {
                "function": "kernels.own:scaled",
                "pattern": "multiply(x, x)",
                "output": "y",
                "signature": [["x", "*fp16"], ["y", "*fp16"], ["n", "i32"]],
                "aligned": ["x"],
                "constants": [["BLOCK", 64]],
                "arguments": {"n": "size(x)"},
                "grid": ["cdiv(size(x), BLOCK)"],
                "warps": 4,
                "stages": 2,
            }
        ]


@pytest.mark.parametrize(
    ("where", "given"),
    [
        ('arch = ["sm_90"]', True),
        ('arch = ["sm_80"]', False),
        ('quantization = ["q0f16", "q4f16_1"]', True),
        ('quantization = ["q0f16"]', False),
    ],
)
def test_it_is_for_architectures_and_schemes(tmp_path: Path, where: str, given: bool) -> None:
    analysis = analysed(workspace(tmp_path, TARGET + where + LIBRARY), "//a:library")
    call = action(analysis, "Phase1").command
    assert isinstance(call, StageCall)
    assert ("triton_kernels" in dict(call.parameters)) == given


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("own:scaled", "own:scalde", "3:12: kernels.own has no @triton.jit function scalde"),
        ("own:scaled", "own:plain", "3:12: kernels.own has no @triton.jit function plain"),
        ("kernels.own:", "kernels.other:", "3:12: there is no module kernels.other: the workspace has no "),
        ("kernels.own:scaled", "kernels/own.py", '3:12: "kernels/own.py" is no function'),
        ('n = "i32" }', 'n = "i32", m = "i32" }', "6:55: scaled has no argument m"),
        ('n = "i32" }', 'n = "i32", BLOCK = "i32" }', "6:55: BLOCK belongs into constexprs"),
        (', n = "i32" }', " }", "6:13: the argument n of scaled has no type"),
        ('n = "i32"', 'n = "int"', '6:44: "int" is no type of an argument'),
        ("constexprs = { BLOCK = 64 }", "", "1:1: the constexpr BLOCK of scaled has no value"),
        ("BLOCK = 64", "BLOCK = 64, SIZE = 2", "7:28: scaled has no argument SIZE"),
        ("BLOCK = 64", 'BLOCK = "64"', "7:16: the constexpr BLOCK is neither a number nor true or false"),
        ("multiply(x, x)", "multiply(x, z)", "4:11: z is no pointer in the signature"),
        ("multiply(x, x)", "multiply(x, n)", "4:11: n is no pointer in the signature"),
        ("multiply(x, x)", "multiply(x, x", "4:11: \"multiply(x, x\" cannot be read: '(' was never closed"),
        ("multiply(x, x)", "x", '4:11: "x" calls no operator'),
        ("multiply(x, x)", "multiply(x, 2.0)", '4:11: "2.0" is neither a tensor nor a call of an operator'),
        ('output = "y"', 'output = "x"', "5:10: x is both a tensor of the pattern and the result"),
        ('{ n = "size(x)" }', "{}", "8:13: the argument n has no value"),
        ('size(x)" }', 'size(z)" }', '8:15: "z" is no tensor of the pattern'),
        ('size(x)" }', 'x.shape" }', '8:15: "x.shape" is no size: write x.shape[0]'),
        ('"cdiv(size(x), BLOCK)"', '"1", "SIZE"', '9:14: "SIZE" is no size'),
        ('"cdiv(size(x), BLOCK)"', '"1", "1", "1"', "9:8: a grid of 3 sizes: it has one or two"),
        ("grid = ", "warps = 3\ngrid = ", "9:9: warps = 3 is no power of two"),
        ("grid = ", 'arch = ["sm_9O"]\ngrid = ', '9:8: there are no kernels in Triton for "sm_9O"'),
    ],
)
def test_mistakes_are_told_where_they_are(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert TARGET.count(old) >= 1
    lines = mistakes(tmp_path, TARGET.replace(old, new, 1))
    assert any(line.startswith(f"a/BUILD.toml:{told}") for line in lines), lines


def test_a_misspelt_function_is_told_with_what_may_have_been_meant(tmp_path: Path) -> None:
    assert mistakes(tmp_path, TARGET.replace("own:scaled", "own:scalde")) == [
        "a/BUILD.toml:3:12: kernels.own has no @triton.jit function scalde in //a:scaled",
        '  kernels.own has: scaled        did you mean "scaled"?',
    ]


@pytest.mark.parametrize("platform", ["cpu", "portable"])
def test_a_platform_without_kernels_in_triton_is_told(tmp_path: Path, platform: str) -> None:
    text = TARGET + LIBRARY.replace('platform = ":gpu"', f'platform = ":{platform}"')
    assert mistakes(tmp_path, text) == [
        f"a/BUILD.toml:36:18: the platform //a:{platform} has no kernels in Triton in //a:library",
        '  a platform of kind cuda has, with kernels = "triton" and one architecture',
    ]


def test_wildcards_leave_out_cells_of_a_matrix_whose_platform_has_none(tmp_path: Path) -> None:
    text = TARGET + LIBRARY.replace('platform = ":gpu"', 'matrix = { platform = [":gpu", ":cpu"] }')
    text = text.replace('name = "library"', 'name = "library-{platform}"')
    analysis = analysed(workspace(tmp_path, text), "//a:all")
    assert {str(each.label) for each in analysis.requested if "library" in str(each.label)} == {"//a:library-gpu"}
    with pytest.raises(WorkspaceErrors, match="the platform //a:cpu has no kernels in Triton in //a:library-cpu"):
        analysed(tmp_path, "//a:library-cpu")


def test_that_triton_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = Path(sysconfig.get_paths()["purelib"])
    others = tmp_path / "others"
    others.mkdir()
    for path in installed.iterdir():
        if not path.name.startswith("triton"):
            (others / path.name).symlink_to(path)
    monkeypatch.setattr("sys.path", [str(others) if Path(each) == installed else each for each in sys.path])
    assert mistakes(tmp_path / "w", TARGET) == [
        "a/BUILD.toml:3:12: Triton is not installed, which compiles the kernel in //a:scaled",
        '  run: python -m pip install "mlcbuild[triton]"',
    ]
