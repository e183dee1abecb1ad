"""The transport over S3 against a real server: what it keeps, finds and refuses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.s3.layout import Layout, ObjectKeys
from mlcbuild.cache.remote.s3.settings import S3Settings
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from tests.remote.s3_world import FUNCTION, MIB, Taken, World
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY


def key_of(text: str) -> Digest:
    return FUNCTION.of_bytes(text.encode())


@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 16 * MIB + 1, 70 * MIB])
def test_a_blob_comes_back_as_it_was(world: World, size: int) -> None:
    transport = world.transport()
    path, digest = world.file(size)
    assert transport.missing([digest]) == (digest,)
    assert not transport.download(digest, Taken())
    assert transport.upload(digest, path)
    assert transport.missing([digest]) == ()
    taken = Taken()
    assert transport.download(digest, taken)
    assert taken.data == path.read_bytes()
    assert not transport.upload(digest, path), "the server has it already"
    assert world.unfinished() == 0


@pytest.mark.parametrize("prefix", ["a", "präfix/模型 1+2%20/~x'(y)&=z", "e\u0301/é"])
def test_any_prefix_is_kept_to_the_letter(world: World, prefix: str) -> None:
    transport = world.transport(prefix=f"{world.prefix}/{prefix}")
    path, digest = world.file(100)
    transport.upload(digest, path)
    transport.write_result(key_of("k"), b"result")
    key = key_of("k").hash
    assert world.keys() == {
        f"{prefix}/v1/blake3/cas/{digest.hash[:2]}/{digest.hash}": 100,
        f"{prefix}/v1/blake3/ac/{key[:2]}/{key}": 6,
    }
    taken = Taken()
    assert transport.download(digest, taken)
    assert taken.data == path.read_bytes()
    assert transport.read_result(key_of("k")) == b"result"


def test_without_a_prefix_keys_begin_with_the_version() -> None:
    digest = Digest("ab" * 32, 1)
    assert ObjectKeys(prefix="", function=FUNCTION).blob(digest) == f"v1/blake3/cas/ab/{digest.hash}"
    shared = ObjectKeys(prefix="", function=DigestFunction.SHA256, layout=Layout.BAZEL_REMOTE)
    assert shared.result(digest) == f"ac/ab/{digest.hash}"


def test_a_bucket_is_shared_with_bazel_remote_in_its_own_layout(world: World) -> None:
    transport = world.transport(function=DigestFunction.SHA256, layout=Layout.BAZEL_REMOTE)
    path, digest = world.file(100, function=DigestFunction.SHA256)
    transport.upload(digest, path)
    transport.write_result(digest, b"result")
    assert world.keys() == {
        f"cas/{digest.hash[:2]}/{digest.hash}": 100,
        f"ac/{digest.hash[:2]}/{digest.hash}": 6,
    }
    with pytest.raises(ValueError, match="only sha256, not 'blake3'"):
        world.transport(layout=Layout.BAZEL_REMOTE)


def test_functions_do_not_mix(world: World) -> None:
    path, digest = world.file(10)
    world.transport().upload(digest, path)
    assert world.transport(function=DigestFunction.SHA256).missing([digest]) == (digest,)


def test_what_is_missing_is_told_once_and_in_order(world: World) -> None:
    transport = world.transport()
    there = [world.file(50, seed=seed) for seed in range(5)]
    for path, digest in there:
        transport.upload(digest, path)
    absent = [FUNCTION.of_bytes(str(number).encode()) for number in range(150)]
    wrong_size = Digest(there[0][1].hash, 51)
    asked = [absent[0], there[1][1], *absent, wrong_size, there[2][1], absent[7], there[1][1]]
    assert transport.missing(asked) == (*absent, wrong_size)
    assert transport.missing([]) == ()


def test_a_large_blob_that_is_absent_hands_nothing_over(world: World) -> None:
    taken = Taken()
    assert not world.transport().download(Digest("ab" * 32, 300 * MIB), taken)
    assert taken.pieces == []


def test_a_result_is_kept_until_it_is_replaced(world: World) -> None:
    transport = world.transport()
    assert transport.read_result(key_of("k")) is None
    assert transport.write_result(key_of("k"), b"first")
    assert not transport.write_result(key_of("k"), b"second")
    assert transport.read_result(key_of("k")) == b"first"
    assert transport.write_result(key_of("k"), b"third", replace=True)
    assert transport.read_result(key_of("k")) == b"third"
    assert transport.write_result(key_of("empty"), b"")
    assert transport.read_result(key_of("empty")) == b""


def test_of_many_writers_of_one_result_one_wins_and_all_go_on(world: World) -> None:
    transports = [world.transport() for _ in range(4)]
    bodies = [f"result of writer {number}".encode() for number in range(32)]
    with ThreadPoolExecutor(32) as pool:
        won = list(pool.map(lambda number: transports[number % 4].write_result(key_of("k"), bodies[number]), range(32)))
    assert sum(won) == 1
    assert transports[0].read_result(key_of("k")) == bodies[won.index(True)]


@pytest.mark.parametrize("size", [1000, 11 * MIB])
def test_many_writers_of_one_blob_do_no_harm(world: World, size: int) -> None:
    transport = world.transport(multipart_bytes=10 * MIB, part_bytes=5 * MIB)
    path, digest = world.file(size)
    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(lambda _: transport.upload(digest, path), range(4)))
    assert sum(won) <= 1 if size == 1000 else any(won)
    taken = Taken()
    assert transport.download(digest, taken)
    assert taken.data == path.read_bytes()
    assert world.unfinished() == 0


@pytest.mark.parametrize("size", [1000, 3 * MIB, 7 * MIB])
@pytest.mark.parametrize("longer", [False, True])
def test_an_object_of_another_size_is_no_blob_and_is_written_over(world: World, size: int, longer: bool) -> None:
    # treeverse/dvc#10767: a truncated upload under the name of the whole was believed.
    transport = world.transport(ranged_bytes=2 * MIB, range_bytes=MIB, multipart_bytes=6 * MIB, part_bytes=5 * MIB)
    path, digest = world.file(size)
    client = world.server.client()
    key = f"{world.prefix}/v1/blake3/cas/{digest.hash[:2]}/{digest.hash}"
    client.put_object(Bucket=world.bucket, Key=key, Body=b"x" * (size + 1 if longer else size // 3))
    assert transport.missing([digest]) == (digest,)
    with pytest.raises(TransportError, match=f"instead of {size}") as caught:
        transport.download(digest, Taken())
    assert caught.value.kind is ErrorKind.ITEM
    assert transport.upload(digest, path)
    taken = Taken()
    assert transport.download(digest, taken)
    assert taken.data == path.read_bytes()


class SinkError(Exception):
    pass


@pytest.mark.parametrize("size", [1000, 18 * MIB])
def test_what_a_sink_raises_comes_through_and_the_transport_goes_on(world: World, size: int) -> None:
    transport = world.transport()
    path, digest = world.file(size)
    transport.upload(digest, path)

    def full(piece: bytes) -> None:
        raise SinkError

    with pytest.raises(SinkError):
        transport.download(digest, full)
    taken = Taken()
    assert transport.download(digest, taken)
    assert taken.data == path.read_bytes()


def test_several_large_blobs_at_once_get_on_together(world: World) -> None:
    transport = world.transport(connections=2, range_bytes=MIB, ranged_bytes=MIB)
    files = [world.file(6 * MIB, seed=seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda each: transport.upload(each[1], each[0]), files))
        sinks = [Taken() for _ in files]
        assert all(pool.map(lambda number: transport.download(files[number][1], sinks[number]), range(6)))
    assert [sink.data for sink in sinks] == [path.read_bytes() for path, _ in files]


@pytest.mark.parametrize(
    ("access_key", "secret_key"), [(ACCESS_KEY, "not-the-secret-at-all"), ("AKIANOBODYKNOWSTHIS1", SECRET_KEY)]
)
def test_wrong_credentials_are_refused_without_being_told(
    world: World, credentials: Callable[[str, str], None], access_key: str, secret_key: str
) -> None:
    credentials(access_key, secret_key)
    transport = world.transport()
    path, digest = world.file(10)
    calls: list[Callable[[], object]] = [
        lambda: transport.missing([digest]),
        lambda: transport.download(digest, Taken()),
        lambda: transport.upload(digest, path),
        lambda: transport.read_result(digest),
        lambda: transport.write_result(digest, b"x"),
    ]
    for call in calls:
        with pytest.raises(TransportError) as caught:
            call()
        assert caught.value.kind is ErrorKind.DENIED
        assert f"at s3://{world.bucket}/{world.prefix} was answered " in str(caught.value)
        assert caught.value.advice
        for secret in (access_key, secret_key, "Signature=", "X-Amz"):
            assert secret not in str(caught.value)


def test_without_credentials_it_says_how_to_give_them(world: World) -> None:
    (world.folder / "credentials").unlink()
    with pytest.raises(TransportError, match="no credentials were found\n  set credentials") as caught:
        world.transport().read_result(key_of("k"))
    assert caught.value.kind is ErrorKind.DENIED


def test_a_bucket_that_is_not_there_is_refused(world: World) -> None:
    transport = world.transport(bucket="nobody-made-this")
    path, digest = world.file(10)
    for call in (
        lambda: transport.download(digest, Taken()),
        lambda: transport.upload(digest, path),
        lambda: transport.read_result(digest),
        lambda: transport.write_result(digest, b"x"),
    ):
        with pytest.raises(TransportError, match="NoSuchBucket") as caught:
            call()
        assert caught.value.kind is ErrorKind.DENIED


def test_a_server_that_has_no_address_is_refused_and_one_that_does_not_listen_may_come_back(world: World) -> None:
    with pytest.raises(TransportError, match="no server has that name") as caught:
        world.transport(endpoint="http://nowhere.invalid:9000").read_result(key_of("k"))
    assert caught.value.kind is ErrorKind.DENIED
    with pytest.raises(TransportError, match="cannot be reached") as caught:
        world.transport(endpoint="http://127.0.0.1:1").read_result(key_of("k"))
    assert caught.value.kind is ErrorKind.TRANSIENT


def test_a_file_that_is_not_the_blob_is_not_sent(world: World) -> None:
    transport = world.transport()
    path, digest = world.file(10)
    with pytest.raises(TransportError, match="has 10 bytes, its digest says 11"):
        transport.upload(Digest(digest.hash, 11), path)
    with pytest.raises(TransportError, match="cannot be uploaded"):
        transport.upload(digest, world.folder / "absent")
    assert world.keys() == {}


@pytest.mark.parametrize(
    "address", ["", "s3://", "s3:///prefix", "s3://a", "http://bucket/x", "s3://bucket//x", "s3://bucket/a/../b"]
)
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        S3Settings.of_address(address)


def test_an_address_or_endpoint_with_credentials_is_refused_without_repeating_them() -> None:
    for make in (
        lambda: S3Settings.of_address("s3://me:hunter2@bucket/x"),
        lambda: S3Settings(bucket="bucket", endpoint="https://me:hunter2@host"),
    ):
        with pytest.raises(ValueError, match=r"^(?!.*hunter2)"):
            make()


def test_an_address_reads_as_it_was_written() -> None:
    settings = S3Settings.of_address("s3://my.bucket/a/b/", region="eu-west-1")
    assert (settings.bucket, settings.prefix, settings.address) == ("my.bucket", "a/b", "s3://my.bucket/a/b")
    assert S3Settings.of_address("s3://bucket").address == "s3://bucket"
