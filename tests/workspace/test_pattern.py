"""Target patterns against a model of them: plain sets of labels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.errors import WorkspaceError
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.pattern import Pattern, PatternKind, parse_pattern, select

FOLDERS = ("", "a", "b", "a/b", "a/bc", "a/b/c", "ab")
labels = st.builds(Label, st.sampled_from(FOLDERS), st.sampled_from(("x", "y", "z", "b")))


def modelled(text: str, current: str, universe: frozenset[Label], manual: frozenset[Label]) -> frozenset[Label]:
    """What one unsigned pattern means, said in another way: by the words of the label's text."""
    absolute = text if text.startswith("//") else f"//{current}" + ("" if text.startswith(":") or not current else "/")
    if not text.startswith("//"):
        absolute += text
    automatic = universe - manual
    if absolute.endswith("..."):
        prefix = absolute[2:].removesuffix("...")
        return frozenset(found for found in automatic if f"{found.package}/".startswith(prefix) or prefix == "")
    if absolute.endswith((":all", ":*")):
        return frozenset(found for found in automatic if f"//{found.package}" == absolute.rpartition(":")[0])
    return frozenset(found for found in universe if str(found) == absolute)


def written(kind: str, folder: str, name: str) -> str:
    return {
        "recursive": f"//{folder}/..." if folder else "//...",
        "all": f"//{folder}:all",
        "star": f"//{folder}:*",
        "target": f"//{folder}:{name}",
        "relative": f"{folder}:{name}",
        "relative all": f"{folder}:all",
        "relative recursive": f"{folder}/..." if folder else "...",
    }[kind]


pattern_texts = st.builds(
    written,
    st.sampled_from(("recursive", "all", "star", "target", "relative", "relative all", "relative recursive")),
    st.sampled_from(FOLDERS),
    st.sampled_from(("x", "y", "b")),
)


@given(
    st.sets(labels),
    st.sets(labels),
    st.lists(st.tuples(st.booleans(), pattern_texts), max_size=6),
    st.sampled_from(FOLDERS),
)
def test_patterns_apply_as_sets_from_left_to_right(
    universe: set[Label], manual: set[Label], signed: list[tuple[bool, str]], current: str
) -> None:
    expected: set[Label] = set()
    everything = frozenset(universe)
    for negative, text in signed:
        if negative:
            expected -= modelled(text, current, everything, frozenset())
        else:
            expected |= modelled(text, current, everything, frozenset(manual))
    patterns = [parse_pattern("-" * negative + text, package=current) for negative, text in signed]
    found = select(patterns, sorted(universe), is_manual=manual.__contains__)
    assert len(found) == len(set(found))
    assert set(found) == expected


def parsed(text: str, package: str = "", is_package: Callable[[str], bool] | None = None) -> Pattern:
    return parse_pattern(text, package=package, is_package=is_package)


def test_results_follow_the_order_of_the_patterns() -> None:
    universe = [Label("a", "x"), Label("a", "y"), Label("b", "x")]
    found = select([parsed("//b:x"), parsed("//...")], universe)
    assert found == (Label("b", "x"), Label("a", "x"), Label("a", "y"))


def test_recursive_pattern_stops_at_whole_segments() -> None:
    pattern = parsed("//a/b/...")
    assert pattern.covers_package("a/b")
    assert pattern.covers_package("a/b/c")
    assert not pattern.covers_package("a/bc")
    assert not pattern.covers_package("a")


def test_words_without_a_colon_mean_what_exists() -> None:
    packages = {"", "m", "m/n"}.__contains__
    assert parsed("m/n", "", packages).label == Label("m/n", "n")
    assert parsed("m/x", "", packages).label == Label("m", "x")
    assert parsed("m/x/y", "", packages).label == Label("m", "x/y")
    assert parsed("n", "m", packages).label == Label("m/n", "n")
    assert parsed("x", "m", packages).label == Label("m", "x")


def test_relative_patterns_start_from_the_current_package() -> None:
    assert parsed("...", "m").package == "m"
    assert parsed("n/...", "m") == Pattern(text="n/...", kind=PatternKind.RECURSIVE, package="m/n")
    assert parsed(":x", "m").label == Label("m", "x")
    assert parsed(":all", "m").package == "m"
    assert parsed("-n:x", "m") == Pattern(text="-n:x", kind=PatternKind.TARGET, package="m/n", name="x", negative=True)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("//a:x-*", ["//a:x-", "//a:x-1-cuda"]),
        ("//a:*-cuda", ["//a:x-1-cuda"]),
        ("//a:x*1*", ["//a:x-1-cuda"]),
        ("//a/...:*-cuda", ["//a:x-1-cuda", "//a/b:y-cuda"]),
        ("...:y*", ["//a/b:y-cuda"]),
        (":*-cuda", ["//a:x-1-cuda"]),
        ("//a/...:*", ["//a:x-", "//a:x-1-cuda", "//a:x", "//a/b:y-cuda"]),
        ("//a:.*", []),
    ],
)
def test_a_star_in_a_name_stands_for_any_characters(text: str, matches: list[str]) -> None:
    universe = [Label("a", "x-"), Label("a", "x-1-cuda"), Label("a", "x"), Label("a/b", "y-cuda"), Label("ab", "z")]
    assert [str(found) for found in select([parsed(text, "a")], universe)] == matches
    assert select([parsed("//..."), parsed(f"-{text}", "a")], universe) == tuple(
        label for label in universe if str(label) not in matches
    )


@pytest.mark.parametrize(
    "text", ["", "-", "//a/...:x", "//a/.../b", "/a:b", "//a:", "//a:b:c", "/a/...", "a//b", "//a/../...", "//"]
)
def test_bad_pattern_is_quoted(text: str) -> None:
    with pytest.raises(WorkspaceError) as caught:
        parsed(text)
    assert f'bad target pattern "{text}"' in str(caught.value)
