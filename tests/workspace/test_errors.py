"""What people read when a workspace is wrong: every mistake, once, with its place and what to do."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.errors import WorkspaceError, WorkspaceErrors
from mlcbuild.workspace.loader import find_root, load_settings
from tests.workspace.world import ROOT, SCHEMAS, errors_of, load_world, toml, write

SNAPSHOT = Path(__file__).parent / "snapshots" / "every_error.txt"

EVERY_ERROR = {
    "BUILD.toml": """\
[workspace]
name = 7
digest = "md5"
colour = "red"
default_platform = "//platforms:cpu"
rules = ["//build:missing.py"]

[configuration.release]
overrides = { opt = "O9", otp = "O3" }
platfrom = "//platforms:cpu"
environmnet = {}

[configuration.tables]
overrides = { overrides = { bogus = 1 }, resources = { cpus = 0 } }

[execution]
executer = "ray"
may_scale_to.big = { cpus = 0, gpu = 1 }

[remote]
adress = "s3://bucket"
upload = "sometimes"

[configuration."a/b"]
""",
    "platforms/BUILD.toml": """\
[[platform]]
name = "cpu"
kind = "llvm"

[[platform]]
name = "cuda"
kind = "cuda"
arch = ["sm_80", "sm_91"]
""",
    "private/BUILD.toml": """\
[[model]]
name = "secret"
visibility = ["//private/..."]
""",
    "inner/BUILD.toml": '[workspace]\nname = "another"\n',
    "broken/BUILD.toml": '[[thing]]\nname = "x\n',
    "configured/BUILD.toml": "[configuration.debug]\n",
    "models/deep/BUILD.toml": "",
    "models/BUILD.toml": """\
[[modle]]
name = "misnamed-rule"

[[model]]
name = "llama"
config = "llama/config.json"
source = ":missing.gguf"

[[model]]
name = "llama"

[model_library]
name = "one pair of brackets"

[[library]]
name = "typing"
modle = ":llama"
quantization = "q4f16_9"
opt = 3
overrides = "none"
platform = ["//platforms:cpu"]
tags = "manual"

[[library]]
model = ":mistral"

[[library]]
name = "labels"
model = "//platforms:cpu"
quantization = "q0f16"
platform = "//platform:cpu"

[[library]]
name = "hidden"
model = "//private:secret"
quantization = "q0f16"
platform = "models:cpu"

[[library]]
name = "choices"
model = ":good"
quantization = { ":good" = "q0f16", relase = "q0f32", "//platforms:cpu" = "q9" }
select.opt = "O2"
select.model = { default = ":good" }

[[model]]
name = "good"

[[library]]
name = "{model}-{quantisation}"
matrix = { model = [":good", ":god"], quantization = ["q0f16", "q0f17"] }
exclude = [{ model = ":good" }]
opt = "O5"

[[library]]
name = "{model}-{quantisation}"
matrix = { model = [":good"], quantization = ["q0f16", "q0f32"] }
exclude = [{ quantization = "q4f16_1" }, { arch = "x" }, { quantization = "q0f32" }, { quantization = "q0f32" }]

[[library]]
name = "{model}"
matrix = { model = [":good"], quantization = ["q0f16", "q0f32"] }

[[library]]
name = "everything-{quantization}"
model = ":good"
matrix = { model = [":good"], quantization = ["q0f16"], tags = ["x"] }

[[library]]
name = "misspelt-{quantization}"
model = ":good"
matrix = { quantization = ["q0f16"], otp = ["O3"] }

[[library]]
name = "nothing-{quantization}"
model = ":good"
matrix = { quantization = ["q0f16"] }
exclude = [{ quantization = "q0f16" }]

[[library]]
name = "plain-{quantization}"
model = ":good"
quantization = "q0f16"

[[library]]
name = "tables"
model = ":good"
quantization = "q0f16"
overrides = { max_batch_size = 0, scale = 1.5, shards = 2, policy = "kep", max_batch_szie = 4 }
select.resources = { "//platforms:cpu" = { cpus = "2", gpus = 1 }, default = {} }

[[library]]
name = "table-in-a-matrix-{cpus}"
model = ":good"
quantization = "q0f16"
matrix = { cpus = [4], overrides = [{ max_batch_size = 4 }, { max_batch_size = 65537, context = 1 }] }

[[thing]]
name = "bad//name"

[[thing]]
name = "deep/inside"

[[thing]]
name = "typed"
text = ""
number = 1.5
flag = 1
words = ["a", 2]
first = ":a:b"
needs = [":good", 3, ":good"]
variables = { A = 1 }
options = { when = 2024-01-01, x = inf }
path = "../up"
unknown = 1

[[thing]]
name = "elsewhere"
needs = [
  "//inner:x", "//broken:x", "//configured:x", "//models/none:x",
  ":typde", ":typed", ":plain-q0f16", ":good", ":good",
]

[[thing]]
name = "circle-a"
needs = [":good", ":circle-b"]

[[thing]]
name = "circle-b"
first = ":circle-c"

[[thing]]
name = "circle-c"
needs = [":circle-a"]

[[thing]]
name = "self"
first = ":self"
""",
}


def test_every_mistake_is_told_once_with_its_place(tmp_path: Path) -> None:
    found = errors_of(write(tmp_path, EVERY_ERROR), "//...", "//modles:x", "-//models:lama", "a//b", "//nowhere/...")
    assert found + "\n" == SNAPSHOT.read_text()


def test_a_single_mistake_reads_as_in_the_style_page(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "models/BUILD.toml": '[[model]]\nname = "m"\n\n[[library]]\nname = "llama-70b-cuda"\nmodel = ":m"\n'
            'quantization = "q4f16_9"\n'
        },
    )
    assert errors_of(tmp_path) == (
        'models/BUILD.toml:7:16: unknown quantization "q4f16_9" in //models:llama-70b-cuda\n'
        '  known: q0f16, q0f32, q4f16_1, q4f32_1        did you mean "q4f16_1"?'
    )


def test_mistake_in_a_needed_package_is_found_from_another(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a/BUILD.toml": '[[thing]]\nname = "a"\nfirst = "//b:b"\n',
            "b/BUILD.toml": '[[thing]]\nname = "b"\nflag = 1\n',
            "c/BUILD.toml": "not read",
        },
    )
    assert errors_of(tmp_path, "//a:a") == 'b/BUILD.toml:3:8: "flag" must be true or false, not the integer 1, in //b:b'


def test_mistake_of_every_cell_is_told_once(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "BUILD.toml": ROOT + '[[thing]]\nname = "{n}"\nmatrix = { n = [1, 2, 3] }\nflag = "x"\nfirst = ":no"\n'
            '[[thing]]\nname = "no-{n}"\nmatrix = { n = [1, 2] }\n'
        },
    )
    assert errors_of(tmp_path).count("BUILD.toml:") == 2


def test_long_cycle_is_told_in_a_few_lines(tmp_path: Path) -> None:
    count = 10_000
    tables = [f'[[thing]]\nname = "t{i:05}"\nfirst = ":t{(i + 1) % count:05}"\n' for i in range(count)]
    write(tmp_path, {"a/BUILD.toml": "\n".join(tables)})
    text = errors_of(tmp_path)
    assert text.startswith("a/BUILD.toml:3:9: dependency cycle: //a:t00000 → //a:t00001 → ")
    assert text.endswith("… and 9990 more, back to //a:t00000")
    assert len(text.splitlines()) == 12


def test_names_whose_outputs_would_mix_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"p/BUILD.toml": '[[thing]]\nname = "x"\n[[thing]]\nname = "x/y"\n'})
    assert errors_of(tmp_path) == "p/BUILD.toml:4:8: the outputs of //p:x/y would be inside those of //p:x"


def test_no_workspace_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"\[workspace\] table"):
        find_root(tmp_path)


def test_root_that_does_not_parse_is_still_the_root(tmp_path: Path) -> None:
    write(tmp_path, {"BUILD.toml": "[workspace]\nname = x\n", "a/BUILD.toml": ""})
    assert find_root(tmp_path / "a") == tmp_path
    with pytest.raises(WorkspaceErrors, match=r"BUILD\.toml:2:8: not valid TOML"):
        load_settings(tmp_path)
    assert errors_of(tmp_path).startswith("BUILD.toml:2:8: not valid TOML")


def test_unknown_configuration_names_those_there_are(tmp_path: Path) -> None:
    write(tmp_path, {"BUILD.toml": ROOT + "[configuration.release]\n"})
    assert errors_of(tmp_path, configuration="relase") == (
        'unknown configuration "relase"\n  known: default, release        did you mean "release"?'
    )


def test_file_of_a_path_must_exist(tmp_path: Path) -> None:
    write(tmp_path, {"m/BUILD.toml": '[[model]]\nname = "m"\nconfig = "confg.json"\n', "m/config.json": "{}"})
    assert errors_of(tmp_path) == (
        'm/BUILD.toml:3:10: no file "m/confg.json" for "config"\n  did you mean "config.json"?'
    )


def test_right_workspace_is_no_mistake(tmp_path: Path) -> None:
    write(tmp_path, {"a/BUILD.toml": '[[thing]]\nname = "x"\n'})
    assert len(load_world(tmp_path).requested) == 1


words = st.sampled_from(
    (
        "x",
        "//a:x",
        ":x",
        ":y",
        "//b",
        "",
        "{n}",
        "q0f16",
        "O2",
        "cpu",
        "default",
        "manual",
        "//...",
        "../x",
        "é",
        "{",
        "//",
    )
)
scalars = st.one_of(words, st.integers(-1, 2), st.booleans())
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=5,
)
known_keys = sorted(
    {"name", "tags", "visibility", "matrix", "exclude", "select", "n"}
    | {attribute for schema in SCHEMAS.values() for attribute in schema.by_name}
)
tables = st.dictionaries(st.sampled_from(known_keys), anything, max_size=6)
matrices = st.dictionaries(st.sampled_from(known_keys), st.lists(scalars, max_size=3), max_size=3)
targets = st.builds(
    lambda table, matrix, exclude: {**table, **matrix, **exclude},
    tables,
    st.one_of(st.just({}), matrices.map(lambda matrix: {"matrix": matrix})),
    st.one_of(st.just({}), st.lists(tables, max_size=2).map(lambda entries: {"exclude": entries})),
)
files = st.dictionaries(
    st.sampled_from((*SCHEMAS, "thnig")), st.one_of(anything, st.lists(targets, max_size=4)), max_size=4
)
configurations = st.dictionaries(
    words,
    st.dictionaries(
        st.sampled_from(("platform", "environment", "defaults", "overrides", "x")),
        st.one_of(anything, tables),
        max_size=3,
    ),
    max_size=2,
)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from(("name", "digest", "rules", "default_platform", "output", "ignore")), anything),
    configurations,
    files,
    files,
)
def test_whatever_is_written_loads_or_is_told_as_mistakes(
    workspace: dict[str, Any], chosen: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    def text(content: dict[str, Any]) -> str:
        return "".join(f"{toml(key)} = {toml(value)}\n" for key, value in content.items())

    root = {"workspace": workspace, "configuration": chosen, **first}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), {"BUILD.toml": text(root), "a/BUILD.toml": text(second)})
        for configuration in ("default", *chosen):
            with contextlib.suppress(WorkspaceErrors):
                load_world(Path(folder), "//...", ":x", configuration=configuration)
