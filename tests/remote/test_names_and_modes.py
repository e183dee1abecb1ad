"""Names, modes, empty files and links through every tier: what one user's action made, another finds as it was.

A directory goes from sources through an action's output, the tier, another user's action that reads it, to placed
outputs. Without a server the tier is the disk cache that both share.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.merkle import TreeFile, tree_of
from mlcbuild.cache.reapi import ActionResult, OutputSymlink, SymlinkNode
from mlcbuild.cache.remote.result_checksum import with_checksum, without_checksum
from tests.end_to_end.world import Done, World, command
from tests.remote import grpc_server, http_server
from tests.remote import s3_world as s3
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY

BLAKE3 = DigestFunction.BLAKE3
DEEP = "/".join(letter * 200 for letter in "abcdefgh")
FILES: dict[str, tuple[bytes, bool]] = {
    "\u00e9 composed": (b"composed", False),
    "e\u0301 composed": (b"decomposed", False),
    "日本語/ファイル": (b"nihon", False),
    "😀": (b"", True),
    "with  spaces ": (b"spaces", False),
    " leading/and: \"quotes'\\`$(x)": (b"quotes", False),
    "tab\tand\nline": (b"control", False),
    "-dash": (b"dash", False),
    "100%2F%00?a=b&c#d": (b"url", False),
    "ü" * 127 + "x": (b"255 bytes", False),
    f"{DEEP}/file": (b"deep", True),
    "empty": (b"", False),
    "large": (b"0123456789abcdef" * 4096, False),
    "run.sh": (b"#!/bin/sh\necho ran\n", True),
    "same bytes.sh": (b"#!/bin/sh\necho ran\n", False),
}
# Sources cannot be named so: labels have one line.
ONLY_MADE = "tab\tand\nline"
COPY = """
cp -R in/data/. $1
printf control > "$1$(printf 'tab\\tand\\nline')"
mkdir ${1}nothing ${1}folder
ln -s run.sh "${1}link"
ln -s "../日本語" "${1}folder/up"
: > $2
"""
LINKS = {"link": (b"#!/bin/sh\necho ran\n", True), "folder/up/ファイル": (b"nihon", False)}
LOOK = """
cd in/d
[ ! -x 'same bytes.sh' ] && [ -x 😀 ] && [ ! -s 😀 ] && [ -f ../nothing ] && [ -d ../e ] && [ ! -e nothing ]
./run.sh > ../../$1
./link >> ../../$1
cat 'é composed' 'é composed' >> ../../$1
find . -type f -printf '%P\\0' >> ../../$1
"""


@dataclass(kw_only=True)
class Tier:
    """How two users share; `rewrite` changes results that a server has, by what its caller makes of each."""

    variables: dict[str, str] = field(default_factory=dict)
    shares_disk: bool = False
    hit: str = "remote_hits"
    rewrite: Callable[[Callable[[ActionResult], ActionResult]], int] = lambda _: 0
    put: Callable[[bytes], object] = lambda _: None
    count: Callable[[], int] = lambda: 0

    def build(self, world: World, *arguments: str, writes: bool = False) -> Done:
        role = {"MLCBUILD_REMOTE_ROLE": "read-write"} if writes and self.variables else {}
        return world.build(*arguments, **self.variables, **role)


def _changed(results: dict[str, bytes], change: Callable[[ActionResult], ActionResult]) -> int:
    for key, data in results.items():
        action = re.search("[0-9a-f]{64}", key)
        assert action is not None
        changed = change(without_checksum(ActionResult.decode(data)))
        results[key] = with_checksum(Digest(action[0], 0), changed, BLAKE3).encode()
    return len(results)


@contextlib.contextmanager
def _over_http() -> Iterator[Tier]:
    with http_server.running() as server:

        def rewrite(change: Callable[[ActionResult], ActionResult]) -> int:
            results = {path: data for path, data in server.blobs.items() if path.startswith("/ac/")}
            count = _changed(results, change)
            server.blobs |= results
            return count

        def put(data: bytes) -> None:
            server.blobs[f"/cas/{BLAKE3.of_bytes(data).hash}"] = data

        yield Tier(
            variables={"MLCBUILD_REMOTE": server.address, "MLCBUILD_REMOTE_SLOW_LOOKUPS": "wait"},
            rewrite=rewrite,
            put=put,
            count=lambda: len(server.blobs),
        )


@contextlib.contextmanager
def _over_grpc() -> Iterator[Tier]:
    with grpc_server.running(BLAKE3) as server:

        def put(data: bytes) -> None:
            server.blobs[str(BLAKE3.of_bytes(data))] = data

        yield Tier(
            variables={"MLCBUILD_REMOTE": server.address, "MLCBUILD_REMOTE_SLOW_LOOKUPS": "wait"},
            rewrite=lambda change: _changed(server.results, change),
            put=put,
            count=lambda: len(server.blobs) + len(server.results),
        )


@contextlib.contextmanager
def _over_s3(world: s3.World) -> Iterator[Tier]:
    client, bucket = world.server.client(), world.bucket

    def rewrite(change: Callable[[ActionResult], ActionResult]) -> int:
        keys = [f"{world.prefix}/{key}" for key in world.keys() if "/ac/" in key]  # noqa: SIM118
        results = {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}
        count = _changed(results, change)
        for key, data in results.items():
            client.put_object(Bucket=bucket, Key=key, Body=data)
        return count

    def put(data: bytes) -> None:
        name = BLAKE3.of_bytes(data).hash
        client.put_object(Bucket=bucket, Key=f"{world.prefix}/v1/blake3/cas/{name[:2]}/{name}", Body=data)

    yield Tier(
        variables={
            "MLCBUILD_REMOTE": f"s3://{bucket}/{world.prefix}",
            "MLCBUILD_REMOTE_SLOW_LOOKUPS": "wait",
            "MLCBUILD_REMOTE_ENDPOINT": world.server.endpoint,
            "MLCBUILD_REMOTE_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        },
        rewrite=rewrite,
        put=put,
        count=lambda: len(world.keys()),
    )


@pytest.fixture(params=["disk", "s3", "http", "grpc"])
def tier(request: pytest.FixtureRequest) -> Iterator[Tier]:
    match request.param:
        case "disk":
            yield Tier(shares_disk=True, hit="disk_hits")
        case "s3":
            with _over_s3(request.getfixturevalue("world")) as made:
                yield made
        case "http":
            with _over_http() as made:
                yield made
        case _:
            with _over_grpc() as made:
                yield made


def user(tmp_path: Path, name: str, tier: Tier, *tables: str) -> World:
    world = World(tmp_path / name, cache=tmp_path / "shared" if tier.shares_disk else None)
    for path, (content, executable) in FILES.items():
        if path != ONLY_MADE:
            world.write(f"data/{path}", content, executable=executable)
    world.commands(*tables)
    return world


MADE = command("made", COPY, inputs=["data"], outputs=["d/", "nothing", "e/"])


def placed(world: World, target: str) -> dict[str, tuple[bytes, bool]]:
    found = {}
    for folder, _, names in os.walk(world.output(target)):
        for name in names:
            path = Path(folder, name)
            assert stat.S_IMODE(path.lstat().st_mode) in (0o444, 0o555)
            found[path.relative_to(world.output(target)).as_posix()] = (path.read_bytes(), os.access(path, os.X_OK))
    return found


EXPECTED = {f"d/{path}": made for path, made in (FILES | LINKS).items()} | {"nothing": (b"", False)}


def test_all_names_modes_and_links_arrive_as_they_were(tmp_path: Path, tier: Tier) -> None:
    first = user(tmp_path, "first", tier, MADE)
    done = tier.build(first, writes=True)
    assert (done.code, done.actions) == (0, {"executed_local": 1}), done.err
    assert placed(first, "made") == EXPECTED
    second = user(tmp_path, "second", tier, MADE, command("look", LOOK, inputs=[":made"]))
    done = tier.build(second)
    assert (done.code, done.actions) == (0, {tier.hit: 1, "executed_local": 1}), done.err
    assert placed(second, "made") == EXPECTED
    # An action that reads them finds the same, and a directory that is an output although nothing is in it.
    seen = second.output("look/out").read_bytes()
    begin = b"ran\nran\ncomposeddecomposed"
    assert seen.startswith(begin)
    names = {path.removeprefix("d/").encode() for path in EXPECTED if path.startswith("d/")}
    assert set(seen.removeprefix(begin).split(b"\0")) == names | {b""}
    assert second.verify() == 2
    assert not (second.output("made/d") / "nothing").exists(), "a directory is its files: one without any is none"


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ("../" * 40 + "etc/hostname", "that leaves the action's directory"),
        ("/etc/hostname", "to the absolute path '/etc/hostname'"),
        ("nowhere", "to nothing ('nowhere')"),
    ],
)
def test_a_link_that_leads_out_fails_its_action_and_nothing_is_kept(
    tmp_path: Path, tier: Tier, link: str, told: str
) -> None:
    world = user(tmp_path, "first", tier, command("x", f"echo > ${{1}}file; ln -s {link} ${{1}}link", outputs=["d/"]))
    done = tier.build(world, writes=True)
    assert (done.code, done.actions) == (1, {"failed": 1})
    assert f"output 'out/d/link' is a symbolic link {told}\n" in done.err
    assert world.verify() == 0
    assert tier.count() == 0


def _linked_tree(put: Callable[[bytes], object]) -> Callable[[ActionResult], ActionResult]:
    def change(result: ActionResult) -> ActionResult:
        directory = result.output_directories[0]
        tree = tree_of([TreeFile("file", BLAKE3.of_bytes(b""))], BLAKE3)
        link = SymlinkNode(name="out", target="../../../../escaped")
        data = dataclasses.replace(tree, root=dataclasses.replace(tree.root, symlinks=(link,))).encode()
        put(data)
        changed = dataclasses.replace(directory, tree_digest=BLAKE3.of_bytes(data))
        return dataclasses.replace(result, output_directories=(changed, *result.output_directories[1:]))

    return change


FORGERIES: dict[str, Callable[[Tier], Callable[[ActionResult], ActionResult]]] = {
    "path": lambda _: (
        lambda result: dataclasses.replace(
            result,
            output_files=tuple(
                dataclasses.replace(file, path="out/../../../../escaped") for file in result.output_files
            ),
        )
    ),
    "absolute path": lambda _: (
        lambda result: dataclasses.replace(
            result, output_files=tuple(dataclasses.replace(file, path="/tmp/escaped") for file in result.output_files)
        )
    ),
    "link": lambda _: (
        lambda result: dataclasses.replace(
            result, output_symlinks=(OutputSymlink(path="out/link", target="../../../../escaped"),)
        )
    ),
    "link in a tree": lambda tier: _linked_tree(tier.put),
}


@pytest.mark.parametrize("tier", ["s3", "http", "grpc"], indirect=True)
@pytest.mark.parametrize("forgery", list(FORGERIES))
def test_a_forged_result_that_leads_out_is_a_miss(tmp_path: Path, tier: Tier, forgery: str) -> None:
    table = command("x", "echo x > $1; echo y > ${2}file", outputs=["x", "d/"])
    assert tier.build(user(tmp_path, "first", tier, table), writes=True).actions == {"executed_local": 1}
    assert tier.rewrite(FORGERIES[forgery](tier)) == 1
    second = user(tmp_path, "second", tier, table)
    done = tier.build(second)
    assert (done.code, done.actions) == (0, {"executed_local": 1})
    assert "1 missed (invalid)" in done.err
    assert placed(second, "x") == {"x": (b"x\n", False), "d/file": (b"y\n", False)}
    assert not list(tmp_path.rglob("escaped"))
    assert not Path("/tmp/escaped").exists()
