"""Matrices: which cells there are, what they are called, and what is in them."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workspace.world import ROOT, errors_of, label, load_world, names, write

WORLD = {
    "platforms/BUILD.toml": '[[platform]]\nname = "cpu"\nkind = "llvm"\n[[platform]]\nname = "gpu"\nkind = "cuda"\n',
    "models/BUILD.toml": '[[model]]\nname = "a"\n[[model]]\nname = "b"\n',
}


def library(*lines: str) -> dict[str, str]:
    return {**WORLD, "models/BUILD.toml": WORLD["models/BUILD.toml"] + "[[library]]\n" + "\n".join(lines) + "\n"}


axes = st.tuples(
    st.lists(st.sampled_from((":a", ":b")), min_size=1, unique=True),
    st.lists(st.sampled_from(("q0f16", "q0f32", "q4f16_1", "q4f32_1")), min_size=1, unique=True),
    st.lists(st.sampled_from(("//platforms:cpu", "//platforms:gpu")), min_size=1, unique=True),
)


@settings(max_examples=50, deadline=None)
@given(axes, st.data())
def test_cells_are_the_product_less_what_is_excluded(
    chosen: tuple[list[str], list[str], list[str]], data: st.DataObject
) -> None:
    keys = ("model", "quantization", "platform")
    cells = list(itertools.product(*chosen))
    exclude: list[dict[str, str]] = []
    remaining = list(cells)
    for _ in range(data.draw(st.integers(0, 2))):
        if len(remaining) < 2:
            break
        cell = data.draw(st.sampled_from(remaining))
        asked = data.draw(st.sets(st.sampled_from(range(3)), min_size=1))
        kept = [other for other in remaining if any(other[i] != cell[i] for i in asked)]
        if kept:
            remaining = kept
            exclude.append({keys[i]: cell[i] for i in asked})
    matrix = ", ".join(f"{key} = {values!r}" for key, values in zip(keys, chosen, strict=True))
    excluded = ", ".join(
        "{" + ", ".join(f"{key} = {value!r}" for key, value in entry.items()) + "}" for entry in exclude
    )
    files = library(
        'name = "{model}-{quantization}-{platform}"',
        f"matrix = {{ {matrix} }}",
        f"exclude = [{excluded}]" if exclude else "",
        'notes = { note = "{platform} of {model}", list = ["{quantization}"] }',
        'tags = ["for-{platform}"]',
    )
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_world(write(Path(folder), files), "//models/...")
    made = {found.label.name: found for found in loaded.targets.values() if found.rule == "library"}
    expected = {}
    for model, quantization, platform in remaining:
        platform_name = platform.partition(":")[2]
        expected[f"{model[1:]}-{quantization}-{platform_name}"] = (model, quantization, platform, platform_name)
    assert set(made) == set(expected)
    for name, (model, quantization, platform, platform_name) in expected.items():
        target = made[name]
        assert str(target.label_of("model")) == f"//models{model}"
        assert target.string("quantization") == quantization
        assert str(target.label_of("platform")) == platform
        assert target.table("notes") == {"note": f"{platform_name} of {model[1:]}", "list": [quantization]}
        assert target.tags == (f"for-{platform_name}",)
        assert {key: str(value) for key, value in target.cell.items()} == {
            "model": f"//models{model}",
            "quantization": quantization,
            "platform": platform,
        }
        assert str(target.platform) == platform


def test_axis_that_is_no_attribute_fills_strings_and_labels(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "BUILD.toml": ROOT + '[[thing]]\nname = "t-{n}-{big}"\nmatrix = { n = [1, 2], big = [true] }\n'
            'text = "{n} {{n}} {N} {"\nwords = ["{inputs}", "{n}"]\nvariables = { A = "{big}" }\nfirst = ":s-{n}"\n'
            '[[thing]]\nname = "s-1"\n[[thing]]\nname = "s-2"\n'
        },
    )
    target = load_world(tmp_path).targets[label("//:t-2-true")]
    assert target.string("text") == "2 {n} {N} {"
    assert target.strings("words") == ("{inputs}", "2")
    assert target.string_map("variables") == {"A": "true"}
    assert str(target.label_of("first")) == "//:s-2"


def test_braces_mean_nothing_without_a_matrix(tmp_path: Path) -> None:
    write(tmp_path, {"BUILD.toml": ROOT + '[[thing]]\nname = "t"\ntext = "{n} {{n}}"\n'})
    assert load_world(tmp_path).targets[label("//:t")].string("text") == "{n} {{n}}"


def test_axis_of_tables_is_usable_but_not_in_a_text(tmp_path: Path) -> None:
    table = '[[thing]]\nname = "t-{n}%s"\nmatrix = { n = [1], options = [{ a = 1 }] }\n'
    write(tmp_path, {"BUILD.toml": ROOT + table % ""})
    assert load_world(tmp_path).targets[label("//:t-1")].table("options") == {"a": 1}
    write(tmp_path, {"BUILD.toml": ROOT + table % "-{options}"})
    assert errors_of(tmp_path).startswith(
        'BUILD.toml:4:8: "{options}" in "name" of //:t-{n}-{options} is a list or table'
    )


def test_cells_of_equal_name_are_told_with_the_missing_axis(tmp_path: Path) -> None:
    write(
        tmp_path, library('name = "x-{model}"', 'matrix = { model = [":a", ":b"], quantization = ["q0f16", "q0f32"] }')
    )
    text = errors_of(tmp_path, "//models/...")
    assert 'two cells of the matrix of //models:x-{model} are both named "x-a"' in text
    assert "add {quantization} to the name" in text


def test_wildcards_and_labels_name_cells_like_other_targets(tmp_path: Path) -> None:
    write(
        tmp_path,
        library('name = "x-{quantization}"', 'matrix = { quantization = ["q0f16", "q0f32"] }', 'model = ":a"'),
    )
    assert names(load_world(tmp_path, "//models:all", "-//models:x-q0f32")) == [
        "//models:a",
        "//models:b",
        "//models:x-q0f16",
    ]


def test_a_matrix_has_a_largest_size(tmp_path: Path) -> None:
    axes = "\n".join(f"{name} = {list(range(40))}" for name in ("a", "b", "c", "d"))
    table = '[[library]]\nname = "{a}-{b}-{c}-{d}"\nmodel = "//models:a"\n[library.matrix]\n' + axes + "\n"
    write(tmp_path, {"BUILD.toml": ROOT, **WORLD, "x/BUILD.toml": table})
    assert errors_of(tmp_path, "//x:all") == (
        "x/BUILD.toml:5:1: the matrix of //x:{a}-{b}-{c}-{d} has 2,560,000 cells, more than 10,000\n"
        "  give its axes fewer values, or write several tables, each for a part of them"
    )
    table = f'[[library]]\nname = "{{a}}"\nmodel = "//models:a"\nmatrix = {{ a = {list(range(10_001))} }}\n'
    write(tmp_path, {"x/BUILD.toml": table})
    assert errors_of(tmp_path, "//x:all") == (
        'x/BUILD.toml:4:16: axis "a" of //x:{a} has 10,001 values, more than a matrix may have cells'
    )
