"""Loading: what is written in `BUILD.toml` files is what targets say."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.errors import WorkspaceError
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import find_root, load_settings, package_of
from tests.workspace.world import ROOT, errors_of, label, load_world, names, toml, write

PACKAGES = ("", "a", "a/b", "c", "c/d e")


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}"), min_size=1, max_size=6)
json_values = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def workspaces(draw: st.DrawFn) -> dict[Label, dict[str, Any]]:
    """Labels and their attributes, as Python values; labels lead to targets that come before."""
    chosen = draw(
        st.lists(
            st.builds(Label, st.sampled_from(PACKAGES), st.sampled_from(("x", "y.z", "k-1", "@", "f/g"))),
            unique=True,
            max_size=10,
        )
    )
    targets: dict[Label, dict[str, Any]] = {}
    for name in chosen:
        optional: dict[str, st.SearchStrategy[Any]] = {
            "text": texts,
            "number": st.integers(-99, 99),
            "flag": st.booleans(),
            "words": st.lists(texts, max_size=3),
            "variables": st.dictionaries(texts, texts, max_size=3),
            "options": st.dictionaries(texts, json_values, max_size=3),
            "tags": st.lists(st.sampled_from(("manual", "slow")), unique=True),
        }
        if targets:
            earlier = st.sampled_from(list(targets))
            optional |= {"first": earlier, "needs": st.lists(earlier, unique=True, max_size=3)}
        targets[name] = draw(st.fixed_dictionaries({}, optional=optional))
    return targets


def written(name: Label, other: Label, style: int) -> str:
    """A label, in one of the forms that mean it in a package."""
    if name.package == other.package and style == 1:
        return f":{other.name}"
    if name.package == other.package and style == 2 and not other.name.startswith("@"):
        return other.name
    return str(other)


@settings(max_examples=60, deadline=None)
@given(workspaces(), st.data())
def test_random_workspace_loads_to_what_was_written(targets: dict[Label, dict[str, Any]], data: st.DataObject) -> None:
    files: dict[str, list[str]] = {"BUILD.toml": [ROOT]}
    for name, attributes in targets.items():
        lines = ["[[thing]]", f"name = {toml(name.name)}"]
        for key, value in attributes.items():
            shown = value
            if key == "first":
                shown = written(name, value, data.draw(st.integers(0, 2)))
            elif key == "needs":
                shown = [written(name, item, data.draw(st.integers(0, 2))) for item in value]
            lines.append(f"{key} = {toml(shown)}")
        files.setdefault(f"{name.package}/BUILD.toml".removeprefix("/"), []).extend([*lines, ""])
    with tempfile.TemporaryDirectory() as folder:
        root = write(Path(folder), {path: "\n".join(lines) for path, lines in files.items()})
        if len(targets) == 0:
            assert load_world(root).targets == {}
            return
        loaded = load_world(root)
        assert list(loaded.targets) == sorted(targets)
        assert set(loaded.requested) == {
            name for name, attributes in targets.items() if "manual" not in attributes.get("tags", ())
        }
        for name, attributes in targets.items():
            target = loaded.targets[name]
            assert target.rule == "thing"
            assert target.tags == tuple(attributes.get("tags", ()))
            assert target.optional_string("text") == attributes.get("text")
            assert target.optional_integer("number") == attributes.get("number")
            assert target.boolean("flag") is attributes.get("flag", False)
            assert target.strings("words") == tuple(attributes.get("words", ()))
            assert target.string_map("variables") == attributes.get("variables", {})
            assert target.table("options") == attributes.get("options", {})
            assert target.optional_label("first") == attributes.get("first")
            assert target.labels("needs") == tuple(attributes.get("needs", ()))
            needed = [attributes["first"]] if "first" in attributes else []
            assert loaded.dependencies(name) == tuple(dict.fromkeys([*needed, *attributes.get("needs", ())]))
            lines = (root / target.location.path).read_text().split("\n")
            for key in attributes.keys() - {"tags"}:
                assert lines[target.location_of(key).line - 1].startswith(f"{key} = ")


def test_places_of_targets_and_attributes(tmp_path: Path) -> None:
    write(tmp_path, {"a/BUILD.toml": '\n[[thing]]\nname = "x"\nneeds = [\n  ":y",\n]\n[[thing]]\nname = "y"\n'})
    target = load_world(tmp_path).targets[label("//a:x")]
    assert str(target.location) == "a/BUILD.toml:2:1"
    assert str(target.location_of("needs")) == "a/BUILD.toml:4:9"
    assert str(target.location_of("text")) == "a/BUILD.toml:2:1"


def test_only_needed_packages_are_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a/BUILD.toml": '[[thing]]\nname = "x"\nfirst = "//b:y"\n',
            "b/BUILD.toml": '[[thing]]\nname = "y"\n',
            "c/BUILD.toml": "nonsense",
        },
    )
    loaded = load_world(tmp_path, "//a:x")
    assert names(loaded) == ["//a:x"]
    assert [str(found) for found in loaded.targets] == ["//a:x", "//b:y"]
    assert [str(found) for found in loaded.closure()] == ["//b:y", "//a:x"]


def test_folders_that_hold_no_packages_of_the_workspace(tmp_path: Path) -> None:
    table = '[[thing]]\nname = "x"\n'
    write(
        tmp_path,
        {
            "BUILD.toml": ROOT + 'ignore = ["third/party"]\noutput = "out"\n',
            "a/b/BUILD.toml": table,
            ".hidden/BUILD.toml": table,
            "third/party/deep/BUILD.toml": table,
            "third/BUILD.toml": table,
            "out/BUILD.toml": table,
            "nested/BUILD.toml": ROOT + table,
            "nested/inside/BUILD.toml": table,
        },
    )
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert names(load_world(tmp_path)) == ["//a/b:x", "//third:x"]
    for package in ("third/party/deep", "nested/inside", "nested"):
        assert errors_of(tmp_path, f"//{package}:x").startswith(f"no package //{package}")


def test_patterns_relative_to_a_package(tmp_path: Path) -> None:
    table = '[[thing]]\nname = "x"\n[[thing]]\nname = "m"\ntags = ["manual"]\n'
    write(tmp_path, {"a/BUILD.toml": table, "a/b/BUILD.toml": table, "c/BUILD.toml": table})
    assert names(load_world(tmp_path, "...", package="a")) == ["//a:x", "//a/b:x"]
    assert names(load_world(tmp_path, "b:all", ":m", package="a")) == ["//a/b:x", "//a:m"]
    assert names(load_world(tmp_path, "//...", "-//a/...")) == ["//c:x"]
    assert names(load_world(tmp_path, "b/x", "//c:m", "-//a/...", package="a")) == ["//c:m"]
    assert names(load_world(tmp_path, "//a:m", "//a/...")) == ["//a:m", "//a:x", "//a/b:x"]


def test_label_may_name_a_file_where_no_target_has_the_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a/BUILD.toml": '[[thing]]\nname = "x"\nfiles = ["data/w.bin", ":both", "//b:y"]\n'
            '[[thing]]\nname = "both"\n',
            "a/data/w.bin": "",
            "a/both": "",
            "b/BUILD.toml": '[[thing]]\nname = "y"\n',
        },
    )
    loaded = load_world(tmp_path, "//a:x")
    files = loaded.targets[label("//a:x")].labels("files")
    assert [str(found) for found in files if loaded.target(found) is None] == ["//a:data/w.bin"]
    assert files[0].path == "a/data/w.bin"
    assert [str(found) for found in loaded.dependencies(label("//a:x"))] == ["//a:both", "//b:y"]


def test_label_without_allow_files_needs_a_target(tmp_path: Path) -> None:
    write(tmp_path, {"a/BUILD.toml": '[[thing]]\nname = "x"\nneeds = [":w.bin"]\n', "a/w.bin": ""})
    assert errors_of(tmp_path).startswith('a/BUILD.toml:3:10: no target //a:w.bin, the "needs" of //a:x')


@pytest.mark.parametrize(
    ("visibility", "sees"),
    [
        ("", {"p", "p/q", "r"}),
        ("visibility = []", set()),
        ('visibility = ["//visibility:private"]', set()),
        ('visibility = ["//visibility:public"]', {"p", "p/q", "r"}),
        ('visibility = ["//p:all"]', {"p"}),
        ('visibility = ["//p/..."]', {"p", "p/q"}),
        ('visibility = ["//r:all", "//p/q:all"]', {"r", "p/q"}),
    ],
)
def test_visibility_says_who_may_depend(tmp_path: Path, visibility: str, sees: set[str]) -> None:
    use = '[[thing]]\nname = "x"\nfirst = "//lib:x"\n'
    inside = f'[[thing]]\nname = "x"\n{visibility}\n[[thing]]\nname = "own"\nfirst = ":x"\n'
    write(tmp_path, {"lib/BUILD.toml": inside, **{f"{user}/BUILD.toml": use for user in ("p", "p/q", "r")}})
    for user in ("p", "p/q", "r"):
        if user in sees:
            load_world(tmp_path, f"//{user}:x", "//lib:own")
        else:
            told = errors_of(tmp_path, f"//{user}:x", "//lib:own")
            assert f'//lib:x is not visible: it cannot be the "first" of //{user}:x' in told


def test_settings_of_the_workspace(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "BUILD.toml": '[workspace]\nname = "w"\ndigest = "sha256"\nrules = ["//build/one.py", "//build:two.py"]\n'
            'output = "out"\ndefault_platform = "//p:cpu"\n',
            "build/one.py": "",
            "build/two.py": "",
            "a/b/x": "",
        },
    )
    found = load_settings(find_root(tmp_path / "a" / "b"))
    assert (found.root, found.name, found.digest, found.output) == (tmp_path, "w", "sha256", "out")
    assert [rule.path for rule in found.rules] == ["build/one.py", "build/two.py"]
    assert str(found.rules[1].location) == "BUILD.toml:4:28"
    assert str(found.default_platform) == "//p:cpu"
    assert list(found.configurations) == ["default"]
    assert package_of(tmp_path, tmp_path / "a" / "b") == "a/b"
    assert package_of(tmp_path, tmp_path) == ""
    with pytest.raises(WorkspaceError, match="is not in the workspace"):
        package_of(tmp_path / "a", tmp_path)


def test_access_by_the_wrong_name_is_a_programmers_error(tmp_path: Path) -> None:
    write(tmp_path, {"a/BUILD.toml": '[[thing]]\nname = "x"\n'})
    target = load_world(tmp_path).targets[label("//a:x")]
    with pytest.raises(KeyError):
        target.get("txet")
    with pytest.raises(KeyError, match="no value for 'text'"):
        target.string("text")
    assert not target.has("text")


def test_chain_deeper_than_the_stack_loads(tmp_path: Path) -> None:
    count = 10_000
    tables = [f'[[thing]]\nname = "t{i}"\n' + (f'first = ":t{i + 1}"\n' if i + 1 < count else "") for i in range(count)]
    write(tmp_path, {"a/BUILD.toml": "\n".join(tables)})
    closure = load_world(tmp_path, "//a:t0").closure()
    assert [found.name for found in closure] == [f"t{i}" for i in reversed(range(count))]


def test_loading_leaves_the_garbage_collector_as_it_was(tmp_path: Path) -> None:
    import gc

    write(tmp_path, {})
    assert gc.isenabled()
    load_world(tmp_path)
    assert gc.isenabled()
