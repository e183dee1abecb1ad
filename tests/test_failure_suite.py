"""The page of failures keeps its word: every row is numbered, cites its issues, and ends in tests that there are."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs/failures.md"
NOT_HERE = "**not here**: "

# The failures that were gathered before there was anything to fail, by their rows. A row without issues tells of what
# is seen in a source.
ISSUES: dict[int, str] = {
    1: "bazelbuild/bazel#4558",
    2: "mozilla/sccache#2299 NVIDIA/cccl#3103",
    3: "mozilla/sccache#2722 mozilla/sccache#2247 cupy/cupy#10187",
    4: "modular/modular#6549",
    5: "triton-lang/triton#1593 vllm-project/vllm#41871",
    6: "vllm-project/vllm#53366 vllm-project/vllm#28416 1CatAI/1Cat-vLLM#536",
    7: "pytorch/pytorch#188332 pytorch/pytorch#191878",
    8: "pytorch/pytorch#184444 pytorch/pytorch#110611 pytorch/pytorch#167463 pytorch/pytorch#160812",
    9: "apache/tvm#15549",
    10: "flashinfer-ai/flashinfer#4489 vllm-project/vllm-metal#373",
    11: "RBLN-SW/vllm-rbln#653 tinygrad/tinygrad#15811 mlc-ai/web-llm#308",
    12: "bazelbuild/bazel#20148 bazelbuild/bazel#12818 bazelbuild/bazel#13262 bazelbuild/bazel#5588"
    " bazelbuild/bazel#29909",
    13: "",
    14: "bazelbuild/bazel#2574 bazelbuild/bazel#7026 envoyproxy/envoy#26565 microsoft/vscode-dev-containers#1453",
    15: "bazelbuild/bazel#2998 bazelbuild/bazel#11429 bazelbuild/bazel#8131 bazel-contrib/rules_cuda#372",
    16: "vllm-project/vllm#47573 ai-dynamo/dynamo#10695",
    17: "jax-ml/jax#16649 cupy/cupy#7345",
    18: "bazel-contrib/rules_cuda#494 bazel-contrib/rules_cuda#372 ccache/ccache#1294",
    19: "bazelbuild/bazel#923 bazelbuild/bazel#1042 bazelbuild/bazel#13593",
    20: "nextflow-io/nextflow#1989 pantsbuild/pants#23228",
    21: "bazelbuild/bazel#3360 bazelbuild/bazel#25569 bazelbuild/bazel#25874 bazelbuild/bazel#26512"
    " bazelbuild/bazel#17173",
    22: "ccache/ccache#1378",
    23: "ccache/ccache#1215 rust-lang/cargo#5919",
    24: "pytorch/pytorch#92664",
    25: "triton-lang/triton#2688 triton-lang/triton#4002 triton-lang/triton#4295 triton-lang/triton#11512",
    26: "vllm-project/vllm#24601 vllm-project/vllm#26521 vllm-project/vllm#18851 NovaSky-AI/SkyRL#2138",
    27: "jax-ml/jax#22718",
    28: "buchgr/bazel-remote#318",
    29: "buildbarn/bb-remote-execution#134",
    30: "bazelbuild/bazel#12137",
    31: "bazelbuild/bazel#16691 bazelbuild/bazel#17428",
    32: "bazelbuild/bazel#6126 bazelbuild/bazel#4276",
    33: "vercel/turborepo#3127",
    34: "treeverse/dvc#10767 treeverse/dvc#9641 treeverse/dvc#5502 treeverse/dvc#10498 treeverse/dvc#4343",
    35: "bazelbuild/bazel#19005",
    36: "buchgr/bazel-remote#922 buchgr/bazel-remote#759 buchgr/bazel-remote#739",
    37: "jax-ml/jax#39880",
    38: "bazelbuild/bazel#31042 bazelbuild/bazel#31209 bazelbuild/bazel#27601",
    39: "ray-project/ray#25370 ray-project/ray#36959 ray-project/ray#17017 ray-project/ray#15595",
    40: "jax-ml/jax#12582",
    41: "mozilla/sccache#2070",
    42: "mozilla/sccache#2821",
    43: "mozilla/sccache#632 mozilla/sccache#218 mozilla/sccache#633 mozilla/sccache#832",
    44: "bazelbuild/bazel#20123 bazelbuild/bazel#11782 bazelbuild/bazel#7652 bazelbuild/bazel#7505"
    " bazelbuild/bazel#7211 bazelbuild/bazel#14576 bazelbuild/bazel#13958",
    45: "buchgr/bazel-remote#649 buchgr/bazel-remote#624 buchgr/bazel-remote#767",
    46: "bazelbuild/bazel#17358 bazelbuild/bazel#17711 bazelbuild/bazel#30948 bazelbuild/bazel#27929"
    " bazelbuild/bazel#19348 bazelbuild/bazel#22387 bazelbuild/bazel#30978 DataDog/datadog-agent#50087",
    47: "facebook/buck2#862 facebook/buck2#1273",
    48: "pantsbuild/pants#16667 pantsbuild/pants#19748 pantsbuild/pants#16009 pantsbuild/pants#15995"
    " pantsbuild/pants#15954",
    49: "pantsbuild/pants#20133",
    50: "peak/s5cmd#678 milaboratory/platforma#1476",
    51: "jenkinsci/jobcacher-plugin#216 MeltwaterArchive/drone-cache#55 treeverse/dvc#100",
    52: "boto/boto3#4392",
    53: "pantsbuild/pants#14224 pantsbuild/pants#18697",
    54: "bazelbuild/bazel#7137 buildbarn/bb-remote-execution#31 pantsbuild/pants#8292 apache/buildstream#2020"
    " apache/buildstream#2033",
    55: "CVE-2025-36852",
    56: "DataDog/datadog-agent#53801",
    57: "vercel/turborepo#3142 vercel/turborepo#6833 vercel/turborepo#4493",
    58: "bazelbuild/bazel#15279",
    59: "bazelbuild/bazel#374 bazelbuild/bazel#7255 bazelbuild/bazel#14381 bazelbuild/bazel#15333"
    " bazelbuild/bazel#24182 bazelbuild/bazel#28685 bazelbuild/bazel#26625",
    60: "bazelbuild/bazel#23462 bazelbuild/bazel#13229",
    61: "treeverse/dvc#1969",
    62: "ninja-build/ninja#463 ninja-build/ninja#1704 mesonbuild/meson#7275 ccache/ccache#512",
    63: "",
    64: "ccache/ccache#68 ccache/ccache#671 ccache/ccache#194",
    65: "ray-project/ray#28714 ray-project/ray#29341 ray-project/ray#32219 ray-project/ray#45244",
    66: "ray-project/ray#50031 ray-project/ray#54237 ray-project/ray#42913 ray-project/ray#12337 ray-project/ray#2005"
    " ray-project/ray#376",
    67: "ray-project/ray#7651 ray-project/kuberay#104 ray-project/kuberay#2153",
    68: "",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the page; `number` is "–" for what was added since the first ones were gathered."""

    number: str
    failure: str
    rule: str
    tests: tuple[str, ...]

    @property
    def issues(self) -> list[str]:
        """Each as owner/repository#number: `a/b#1, #2` are two of one repository."""
        found, repository = [], ""
        for owner, number, other in re.findall(r"([\w.-]+/[\w.-]+)?#(\d+)|(CVE-[\d-]+)", self.failure):
            repository = owner or repository
            found.append(other or f"{repository}#{number}")
        return found


def read_rows(page: str) -> list[Row]:
    rows = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or cells[0] in ("#", "---"):
            continue
        assert len(cells) == 4, f"a row has four cells: {line[:80]}"
        names = tuple(re.findall(r"`([^`]+)`", cells[3]))
        assert cells[3] in (", ".join(f"`{name}`" for name in names), "–"), f"tests and nothing else: {cells[3]}"
        rows.append(Row(number=cells[0], failure=cells[1], rule=cells[2], tests=names))
    return rows


ROWS = read_rows(PAGE.read_text(encoding="utf-8"))


def test_every_failure_has_its_row_in_order() -> None:
    assert [int(row.number) for row in ROWS if row.number != "–"] == list(range(1, 69)) == list(ISSUES)


@pytest.mark.parametrize("row", [row for row in ROWS if row.number != "–"], ids=lambda row: row.number)
def test_a_row_cites_its_issues(row: Row) -> None:
    assert sorted(row.issues) == sorted(ISSUES[int(row.number)].split())


def test_no_issue_has_two_rows() -> None:
    issues = [issue for row in ROWS if row.number == "–" for issue in row.issues]
    assert sorted(issues) == sorted(set(issues))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_a_row_ends_in_tests_or_in_a_reason(row: Row) -> None:
    assert row.tests or len(row.rule.partition(NOT_HERE)[2]) > 20


def functions_of(file: Path) -> dict[str, set[str]]:
    """The tests in a file, and the marks that each has."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {
        node.name: {
            each.attr
            for decorator in node.decorator_list
            for each in ast.walk(decorator)
            if isinstance(each, ast.Attribute)
        }
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("name", sorted({name for row in ROWS for name in row.tests}))
def test_every_test_that_is_named_is_there_and_runs_in_ci(name: str) -> None:
    path, _, function = name.partition("::")
    file = TESTS / f"{path}.py"
    assert file.is_file(), f"there is no {file.name}"
    functions = functions_of(file)
    assert function in functions, f"there is no {function} in {file.name}"
    assert "exhaustive" not in functions[function]


def test_a_row_is_read_with_its_issues() -> None:
    page = "| # | a | b | c |\n|---|---|---|---|\n"
    page += "| 7 | a/b#1, #2, c.d/e-f#3: x; CVE-2025-1 | rule | `x/test_y::test_z` |\n"
    (row,) = read_rows(page)
    assert (row.number, row.issues, row.tests) == (
        "7",
        ["a/b#1", "a/b#2", "c.d/e-f#3", "CVE-2025-1"],
        ("x/test_y::test_z",),
    )
    assert functions_of(Path(__file__))["test_a_row_cites_its_issues"] >= {"mark", "parametrize"}
    with pytest.raises(AssertionError, match="tests and nothing else"):
        read_rows(page.replace("`x/test_y::test_z`", "`x/test_y::test_z` and others"))
