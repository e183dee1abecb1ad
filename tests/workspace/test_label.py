"""Labels: what is one, what is none, and that writing and reading agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.errors import Location, WorkspaceError
from mlcbuild.workspace.label import Label, LabelError, parse_label
from mlcbuild.workspace.pattern import parse_pattern

CHARACTERS = "abzABZ019!%-@^_\"#$&'()*+,;<=>?[]{|}~. "
segments = st.text(CHARACTERS, min_size=1, max_size=6).filter(lambda text: text not in (".", "..", "..."))
paths = st.lists(segments, min_size=1, max_size=4).map("/".join)
packages = st.one_of(st.just(""), paths)


@given(packages, paths)
def test_written_label_reads_back(package: str, name: str) -> None:
    label = Label(package, name)
    assert parse_label(str(label), package="else/where") == label


@given(packages, segments.filter(lambda name: name[0] not in "@"))
def test_short_forms_mean_the_full_one(package: str, name: str) -> None:
    full = Label(package, name)
    assert parse_label(f":{name}", package=package) == full
    assert parse_label(name, package=package) == full
    if package:
        assert parse_label(f"//{package}", package="x") == Label(package, package.rpartition("/")[2])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        (":", "it names no target"),
        ("//", "it names no target"),
        ("//a:", "it ends in a colon"),
        ("a:b", "a package is written with two slashes"),
        ("/a:b", "it begins with one slash"),
        ("//a//b:c", "empty path segment"),
        ("//a/:c", "begins or ends with a slash"),
        ("//a/../b:c", 'the path segment "." or ".."'),
        ("//.:c", 'the path segment "." or ".."'),
        ("//a:b/", "begins or ends with a slash"),
        ("//a:b//c", "empty path segment"),
        (":../c", 'the path segment "." or ".."'),
        ("//a:b:c", 'contains ":"'),
        (":a\\b", 'contains "\\"'),
        (":a\nb", "a control character"),
        (":é", 'contains "é"'),
        ("@other", "it names no repository"),
        ("@//a:b", "it names no repository"),
        ("@a/b//c:d", "it names no repository"),
        ("@other//", "it names no target"),
        ("@other//a//b:c", "empty path segment"),
        ("@other//a/:c", "begins or ends with a slash"),
        ("//a/...", "this is a pattern"),
    ],
)
def test_bad_label_says_why(text: str, reason: str) -> None:
    with pytest.raises(WorkspaceError) as caught:
        parse_label(text, package="p", location=Location(path="BUILD.toml", line=3, column=4))
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f'BUILD.toml:3:4: bad label "{text}"')


def test_label_with_the_wrong_number_of_slashes_names_the_right_one() -> None:
    with pytest.raises(WorkspaceError, match='did you mean "//a:b"'):
        parse_label("/a:b", package="")
    with pytest.raises(WorkspaceError, match='did you mean "//a:b"'):
        parse_label("a:b", package="")


def test_bad_parts_are_refused_where_a_label_is_made() -> None:
    with pytest.raises(LabelError, match="a target name is empty"):
        Label("a", "")
    with pytest.raises(LabelError, match="not allowed there"):
        Label("a:b", "c")


def test_path_of_a_file_label() -> None:
    assert Label("models", "a/b.json").path == "models/a/b.json"
    assert Label("", "b.json").path == "b.json"


def test_labels_sort_by_package_then_name() -> None:
    labels = [Label("b", "a"), Label("a", "z"), Label("", "q"), Label("a", "b")]
    assert [str(label) for label in sorted(labels)] == ["//:q", "//a:b", "//a:z", "//b:a"]


def test_labels_of_built_in_repositories_read_back_as_they_are_written() -> None:
    for text in ("@platforms//:cuda", "@platforms//a/b:c"):
        assert str(parse_label(text, package="p")) == text
    assert str(parse_label("@platforms//a/b", package="p")) == "@platforms//a/b:b"
    assert parse_label("@platforms//:cuda", package="").package == "@platforms//"


def test_a_folder_may_begin_with_an_at_sign() -> None:
    assert str(parse_label("//@types/node:x", package="")) == "//@types/node:x"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("//" + "/".join("a" * 5000) + ":x", "it is longer than 1,024 characters"),
        ("/".join("a" * 5000), "it is longer than 1,024 characters"),
        (":" + "a" * 100_000, "it is longer than 1,024 characters"),
        ("//x/" + "a" * 256, "a name in it is longer than 255 characters"),
    ],
)
def test_a_label_or_pattern_that_no_path_could_have_is_told_in_short(text: str, reason: str) -> None:
    for read, what in ((parse_label, "label"), (parse_pattern, "target pattern")):
        with pytest.raises(WorkspaceError) as caught:
            read(text, package="p")
        assert str(caught.value).startswith(f'bad {what} "{text[:100]}')
        assert str(caught.value).endswith(f": {reason}")
        assert len(str(caught.value)) < 350
    assert str(parse_label("//x/" + "a" * 255, package="")) == f"//x/{'a' * 255}:{'a' * 255}"
