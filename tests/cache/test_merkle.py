"""Trees of files have one digest each, and survive the way through REAPI's messages."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cache import merkle, reapi
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.merkle import TreeFile, files_of, input_root, tree_of

SHA256 = DigestFunction.SHA256
HELLO = SHA256.of_bytes(b"hello\n")

_segments = st.text(alphabet="ab.-é漢😀\uffff", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))


@st.composite
def file_sets(draw: st.DrawFn) -> tuple[TreeFile, ...]:
    """Files whose paths do not run through each other."""
    files: dict[str, TreeFile] = {}
    for segments in draw(st.lists(st.lists(_segments, min_size=1, max_size=4), max_size=12)):
        path = "/".join(segments)
        if not any(path == other or path.startswith(other + "/") or other.startswith(path + "/") for other in files):
            blob = SHA256.of_bytes(draw(st.binary(max_size=2)))
            files[path] = TreeFile(path, blob, draw(st.booleans()))
    return tuple(files[path] for path in sorted(files))


def naive_root(files: tuple[TreeFile, ...]) -> Digest:
    """The definition, word for word: Directory messages, bottom up."""
    below: dict[str, list[TreeFile]] = {}
    here = []
    for path, digest, is_executable in files:
        first, slash, rest = path.partition("/")
        if slash:
            below.setdefault(first, []).append(TreeFile(rest, digest, is_executable))
        else:
            here.append(reapi.FileNode(name=path, digest=digest, is_executable=is_executable))
    directory = reapi.Directory(
        files=tuple(sorted(here, key=lambda node: node.name.encode())),
        directories=tuple(
            reapi.DirectoryNode(name=name, digest=naive_root(tuple(inside)))
            for name, inside in sorted(below.items(), key=lambda item: item[0].encode())
        ),
    )
    return SHA256.of_bytes(directory.encode())


def test_the_root_is_that_of_the_official_protocol() -> None:
    root = input_root([TreeFile("a.txt", HELLO)], SHA256)
    assert str(root.digest) == "eb8d6f9545e418ae849cc6319cf0d810d7dd4e01e0eb5d603817eeb64b87b9f3/79"
    assert str(input_root([], SHA256).digest) == f"{SHA256.of_bytes(b'').hash}/0"


@given(file_sets(), st.randoms())
def test_the_root_follows_the_definition_in_any_order(files: tuple[TreeFile, ...], random: object) -> None:
    shuffled = list(files)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    root = input_root(shuffled, SHA256)
    assert root.digest == naive_root(files)
    assert all(SHA256.of_bytes(data) == digest for digest, data in root.directories)
    assert root.directories[-1][0] == root.digest


@given(file_sets())
def test_output_trees_give_back_their_files(files: tuple[TreeFile, ...]) -> None:
    tree = tree_of(files, SHA256)
    assert files_of(reapi.Tree.decode(tree.encode()), SHA256) == tuple(sorted(files))


@given(file_sets())
def test_trees_list_each_directory_once_and_parents_first(files: tuple[TreeFile, ...]) -> None:
    tree = tree_of(files, SHA256)
    order = [SHA256.of_bytes(child.encode()) for child in tree.children]
    assert len(set(order)) == len(order)
    for index, child in enumerate(tree.children):
        assert all(order.index(node.digest) > index for node in child.directories)


@given(file_sets(), file_sets())
def test_different_files_have_different_roots(one: tuple[TreeFile, ...], other: tuple[TreeFile, ...]) -> None:
    assert (input_root(one, SHA256).digest == input_root(other, SHA256).digest) == (one == other)


@pytest.mark.parametrize("paths", [["a", "a"], ["a", "a/b"], ["a/b", "a"], ["a/b/c", "a/b"], ["a/b", "a/b/c"]])
def test_paths_in_each_others_way_are_refused(paths: list[str]) -> None:
    with pytest.raises(ValueError, match=r"'a(/b)?(/c)?'"):
        input_root([TreeFile(path, HELLO) for path in paths], SHA256)


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a/.", "a\0"])
def test_paths_out_of_the_root_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a file name"):
        input_root([TreeFile(path, HELLO)], SHA256)


def test_a_name_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        input_root([TreeFile("a\udcff", HELLO)], SHA256)


def test_trees_with_links_or_holes_are_refused() -> None:
    link = reapi.Directory(symlinks=(reapi.SymlinkNode(name="etc", target="/etc"),))
    with pytest.raises(ValueError, match="symbolic link in a tree: 'etc'"):
        files_of(reapi.Tree(root=link), SHA256)
    hole = reapi.Directory(directories=(reapi.DirectoryNode(name="sub", digest=HELLO),))
    with pytest.raises(ValueError, match="without its directory 'sub'"):
        files_of(reapi.Tree(root=hole), SHA256)


def test_a_small_tree_that_stands_for_a_huge_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merkle, "_MAXIMUM_NODES", 10_000)
    directory = reapi.Directory(files=(reapi.FileNode(name="a", digest=HELLO),))
    children = []
    for _ in range(40):
        children.append(directory)
        digest = SHA256.of_bytes(directory.encode())
        directory = reapi.Directory(
            directories=(
                reapi.DirectoryNode(name="l", digest=digest),
                reapi.DirectoryNode(name="r", digest=digest),
            )
        )
    with pytest.raises(ValueError, match="a tree of more than"):
        files_of(reapi.Tree(root=directory, children=tuple(children)), SHA256)


def test_ten_thousand_files_take_well_under_a_second() -> None:
    files = [TreeFile(f"shards/{index % 100}/params_shard_{index}.bin", HELLO) for index in range(10_000)]
    started = time.process_time()
    input_root(files, DigestFunction.BLAKE3)
    assert time.process_time() - started < 0.5
