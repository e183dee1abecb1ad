"""REAPI messages have exactly the bytes of the official protocol, and bad bytes are refused."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cache import reapi, wire
from mlcbuild.cache.digest import Digest, DigestFunction

SHA256 = DigestFunction.SHA256
HELLO = SHA256.of_bytes(b"hello\n")
INNER = reapi.Directory(files=(reapi.FileNode(name="a.txt", digest=HELLO),))
OUTER = reapi.Directory(
    files=(reapi.FileNode(name="run.sh", digest=HELLO, is_executable=True),),
    directories=(reapi.DirectoryNode(name="sub", digest=SHA256.of_bytes(INNER.encode())),),
    symlinks=(reapi.SymlinkNode(name="z", target="sub/a.txt"),),
)
COMMAND = reapi.Command(
    arguments=("/bin/sh", "-c", "cat a.txt > out.txt"),
    environment=(("LANG", "C"), ("PATH", "/bin")),
    output_paths=("out.txt",),
)
ACTION = reapi.Action(
    command_digest=SHA256.of_bytes(COMMAND.encode()),
    input_root_digest=SHA256.of_bytes(INNER.encode()),
    timeout_seconds=60,
    salt=b"v1",
    platform=reapi.Platform(properties=(("OSFamily", "linux"),)),
)
RESULT = reapi.ActionResult(
    output_files=(reapi.OutputFile(path="out.txt", digest=HELLO),),
    execution_metadata=reapi.ExecutedActionMetadata(worker="w"),
)
TREE = reapi.Tree(root=OUTER, children=(INNER,))


# These were computed with the official protocol definition and Google's protobuf library.
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (reapi.Directory(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/0"),
        (INNER, "eb8d6f9545e418ae849cc6319cf0d810d7dd4e01e0eb5d603817eeb64b87b9f3/79"),
        (OUTER, "dfea7aa76a64ec1a1205ed099bc095e70e079a131c5f0c27d69a29617fc0f468/175"),
        (COMMAND, "32e7958f8dca26c6ecca62588ca8ad25bd8881647b0a422cb66a902fecf71292/68"),
        (ACTION, "9f76759d6f92fcd32e4d47fd8d63eeb05f6428e8a713ce49b64d656613fde5a0/169"),
        (RESULT, "01be3d02587583cd11e56e8649fafcf102bdb934aab82df5ccfcf36ec507acc3/86"),
        (TREE, "f273e6e14dd65a41a6caa1706cc0d07e72daf227dfc219c12e607686a841b98e/259"),
    ],
)
def test_digests_are_those_of_the_official_protocol(message: Any, expected: str) -> None:
    assert str(SHA256.of_bytes(message.encode())) == expected


digests = st.builds(
    Digest,
    st.text(alphabet="0123456789abcdef", min_size=64, max_size=64),
    st.integers(min_value=0, max_value=(1 << 63) - 1),
)
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(alphabet=string.ascii_letters + ".-_é漢😀", min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..")
)
contents = st.binary(max_size=40)


@st.composite
def directories(draw: st.DrawFn) -> reapi.Directory:
    drawn = sorted(draw(st.sets(names, max_size=6)))
    kinds = [draw(st.integers(0, 2)) for _ in drawn]
    files = [
        reapi.FileNode(name=name, digest=draw(digests), is_executable=draw(st.booleans()))
        for name, kind in zip(drawn, kinds, strict=True)
        if kind == 0
    ]
    folders = [
        reapi.DirectoryNode(name=name, digest=draw(digests))
        for name, kind in zip(drawn, kinds, strict=True)
        if kind == 1
    ]
    links = [
        reapi.SymlinkNode(name=name, target=draw(texts)) for name, kind in zip(drawn, kinds, strict=True) if kind == 2
    ]
    return reapi.Directory(files=tuple(files), directories=tuple(folders), symlinks=tuple(links))


@st.composite
def output_files(draw: st.DrawFn) -> reapi.OutputFile:
    inlined = draw(contents)
    digest = SHA256.of_bytes(inlined) if inlined else draw(digests)
    return reapi.OutputFile(path=draw(texts), digest=digest, is_executable=draw(st.booleans()), contents=inlined)


metadata = st.builds(
    reapi.ExecutedActionMetadata,
    worker=texts,
    auxiliary_metadata=st.lists(st.builds(reapi.AnyMessage, type_url=texts, value=contents), max_size=3).map(tuple),
)
results = st.builds(
    reapi.ActionResult,
    output_files=st.lists(output_files(), max_size=3).map(tuple),
    output_directories=st.lists(
        st.builds(reapi.OutputDirectory, path=texts, tree_digest=digests, is_topologically_sorted=st.booleans()),
        max_size=3,
    ).map(tuple),
    output_symlinks=st.lists(st.builds(reapi.OutputSymlink, path=texts, target=texts), max_size=3).map(tuple),
    exit_code=st.integers(-(1 << 31), (1 << 31) - 1),
    stdout_raw=contents,
    stdout_digest=st.none() | digests,
    stderr_raw=contents,
    stderr_digest=st.none() | digests,
    execution_metadata=st.none() | metadata,
)
pairs = st.dictionaries(texts, texts, max_size=4).map(lambda drawn: tuple(sorted(drawn.items())))
commands = st.builds(
    reapi.Command,
    arguments=st.lists(texts, max_size=4).map(tuple),
    environment=pairs,
    working_directory=texts,
    output_paths=st.sets(names, max_size=4).map(lambda drawn: tuple(sorted(drawn))),
)
actions = st.builds(
    reapi.Action,
    command_digest=digests,
    input_root_digest=digests,
    timeout_seconds=st.integers(0, 1 << 40),
    do_not_cache=st.booleans(),
    salt=contents,
    platform=st.none() | st.builds(reapi.Platform, properties=pairs),
)
trees = st.builds(reapi.Tree, root=directories(), children=st.lists(directories(), max_size=3).map(tuple))
messages = st.one_of(directories(), results, commands, actions, trees)


@given(messages)
def test_messages_survive_encoding(message: Any) -> None:
    assert type(message).decode(message.encode()) == message


@given(messages, st.integers(16, 5000), st.binary(max_size=20))
def test_unknown_fields_are_passed_over(message: Any, number: int, value: bytes) -> None:
    more = wire.bytes_field(number, value) + wire.integer_field(number + 1, 7)
    more += wire.varint((number + 2) << 3 | wire.FIXED32) + b"abcd" + wire.varint((number + 3) << 3 | 1) + b"8 bytes!"
    assert type(message).decode(message.encode() + more) == message
    assert type(message).decode(more + message.encode()) == message


@given(st.one_of(directories(), results, commands, actions), st.data())
def test_truncated_messages_are_refused_or_are_shorter_messages(message: Any, data: st.DataObject) -> None:
    encoded = message.encode()
    cut = encoded[: data.draw(st.integers(0, max(0, len(encoded) - 1)))]
    try:
        decoded = type(message).decode(cut)
    except ValueError:
        return
    assert decoded != message or not encoded


@given(st.sampled_from([reapi.Action, reapi.ActionResult, reapi.Directory, reapi.Command, reapi.Tree]), st.binary())
def test_noise_is_refused_with_a_value_error_or_read(kind: Any, noise: bytes) -> None:
    try:
        message = kind.decode(noise)
    except ValueError:
        return
    assert kind.decode(message.encode()) == message


@pytest.mark.parametrize(
    ("noise", "complaint"),
    [
        (b"\x12", "ends inside a number"),
        (b"\x12\x05ab", "ends inside field 2"),
        (b"\x13\x14", "wire type 3"),
        (b"\x02\x01a", "field number 0"),
        (b"\xff" * 12, "more than 64 bits"),
        (b"\x20\x01\x20\x02", "appears 2 times"),
        (b"\x22\x01a", "is bytes, not a number"),
        (b"\x10\x07", "is a number, not bytes"),
    ],
)
def test_malformed_results_say_what_is_wrong(noise: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        reapi.ActionResult.decode(noise)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "nul\0"])
def test_a_node_cannot_be_named_out_of_its_directory(name: str) -> None:
    encoded = wire.text_field(1, name) + wire.bytes_field(2, reapi.encode_digest(HELLO))
    with pytest.raises(ValueError, match="not a file name"):
        reapi.FileNode.decode(encoded)
    with pytest.raises(ValueError, match="not a file name"):
        reapi.Directory.decode(wire.bytes_field(2, encoded))


def test_unsorted_and_repeated_names_are_refused() -> None:
    a, b = (reapi.FileNode(name=name, digest=HELLO) for name in "ab")
    with pytest.raises(ValueError, match="'a' after 'b'"):
        reapi.Directory(files=(b, a))
    with pytest.raises(ValueError, match="appears twice"):
        reapi.Directory(files=(a,), symlinks=(reapi.SymlinkNode(name="a", target="x"),))
    with pytest.raises(ValueError, match="not sorted"):
        reapi.Command(arguments=(), environment=(("b", ""), ("a", "")))
    with pytest.raises(ValueError, match="slash"):
        reapi.Command(arguments=(), output_paths=("a/",))


def test_inlined_contents_must_have_the_size_of_their_digest() -> None:
    with pytest.raises(ValueError, match="3 bytes inlined"):
        reapi.OutputFile(path="a", digest=HELLO, contents=b"abc")


def test_a_digest_is_read_back_from_its_text() -> None:
    assert Digest.parse(str(HELLO)) == HELLO
    for text in ("", "abc/1", HELLO.hash, f"{HELLO.hash}/-1", f"{HELLO.hash}/", f"{HELLO.hash.upper()}/6"):
        with pytest.raises(ValueError, match=r"not a "):
            Digest.parse(text)
