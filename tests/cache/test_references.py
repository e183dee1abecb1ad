"""What a result names, as read from bytes, is what its values say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.merkle import TreeFile, files_of, input_root, tree_of
from mlcbuild.cache.reapi import (
    Action,
    ActionResult,
    AnyMessage,
    Command,
    ExecutedActionMetadata,
    OutputDirectory,
    OutputFile,
    Tree,
    encode_digest,
)
from mlcbuild.cache.references import ReferenceReader, References

BLAKE3 = DigestFunction.BLAKE3

digests = st.binary(max_size=3).map(BLAKE3.of_bytes)
names = st.sampled_from(["a", "b", "ü", "c c"])
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


@st.composite
def trees(draw: st.DrawFn) -> list[TreeFile]:
    """Files none of whose paths is a folder of another."""
    wanted = draw(st.lists(paths, unique=True, max_size=8))
    kept = [path for path in wanted if not any(other.startswith(f"{path}/") for other in wanted)]
    return [TreeFile(path, draw(digests), draw(st.booleans())) for path in kept]


@settings(max_examples=150, deadline=None)
@given(st.lists(digests, max_size=4), st.lists(trees(), max_size=3), trees(), st.none() | digests, st.none() | digests)
def test_every_reference_of_a_result_is_found(
    files: list[Digest],
    directories: list[list[TreeFile]],
    inputs: list[TreeFile],
    log: Digest | None,
    breakdown: Digest | None,
) -> None:
    blobs: dict[str, bytes] = {}

    def put(data: bytes) -> Digest:
        digest = BLAKE3.of_bytes(data)
        blobs[digest.hash] = data
        return digest

    root = input_root(inputs, BLAKE3)
    for _, data in root.directories:
        put(data)
    command = put(Command(arguments=("x",)).encode())
    action = put(Action(command_digest=command, input_root_digest=root.digest).encode())
    tree_digests = [put(tree_of(entries, BLAKE3).encode()) for entries in directories]
    metadata = () if breakdown is None else (AnyMessage(type_url="b", value=encode_digest(breakdown)),)
    result = ActionResult(
        output_files=tuple(OutputFile(path=f"f{n}", digest=digest) for n, digest in enumerate(files)),
        output_directories=tuple(OutputDirectory(path=f"d{n}", tree_digest=t) for n, t in enumerate(tree_digests)),
        stdout_digest=log,
        execution_metadata=ExecutedActionMetadata(worker="w", auxiliary_metadata=metadata),
    )
    found = ReferenceReader(blobs.get).of_result(action.hash, result.encode())
    inside = [entry for tree in tree_digests for entry in files_of(Tree.decode(blobs[tree.hash]), BLAKE3)]
    assert set(found.outputs) == {digest.hash for digest in (*files, *(entry.digest for entry in inside))}
    assert set(found.trees) == {tree.hash for tree in tree_digests}
    assert found.log == (() if log is None else (log.hash,))
    expected = {action.hash, command.hash, *(digest.hash for digest, _ in root.directories)}
    assert set(found.key) == expected | ({breakdown.hash} if breakdown else set())
    nothing_else = ReferenceReader(lambda _: None).of_result(action.hash, result.encode())
    assert set(nothing_else.outputs) == {digest.hash for digest in files}
    assert nothing_else.trees == found.trees


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_result_or_a_value_error(data: bytes) -> None:
    reader = ReferenceReader(lambda _: data)
    try:
        assert isinstance(reader.of_result("0" * 64, data), References)
    except ValueError:
        pass


def test_directories_that_name_each_other_come_to_an_end() -> None:
    def read(_: str) -> bytes:
        from mlcbuild.cache.reapi import Directory, DirectoryNode

        nodes = [DirectoryNode(name=str(n), digest=BLAKE3.of_bytes(bytes([n]))) for n in range(3)]
        return Directory(directories=tuple(nodes)).encode()

    with pytest.raises(ValueError, match="not a digest"):
        ReferenceReader(read).of_result("0" * 64, b"\x12\x04\x12\x02ab")
    body = ActionResult(execution_metadata=ExecutedActionMetadata(worker="w")).encode()
    blobs = {"0" * 64: Action(command_digest=BLAKE3.of_bytes(b"c"), input_root_digest=BLAKE3.of_bytes(b"r")).encode()}
    found = ReferenceReader(lambda digest: blobs.get(digest) or read(digest)).of_result("0" * 64, body)
    assert len(found.key) == 1 + 1 + 1 + 3
