"""Outputs survive the way through a REAPI result."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcbuild.cache import reapi
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.references import ReferenceReader
from mlcbuild.cache.remote.results import blobs_in, explanation_of
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.engine.action import Action, CachePolicy, Discovery, ToolCall
from mlcbuild.engine.action_results import INLINE_BYTES, blobs_of, manifest_of, outputs_of, result_of, stays_here
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.keys import compute_key, publish, read_key
from mlcbuild.engine.shared_form import kept_files, shared_files, shared_form


def announce(*, discovering: str, manifest: bytes) -> Discovery:
    return Discovery()


ACTION = Action(
    identifier="a",
    mnemonic="Partition",
    owner="//a:a",
    inputs=(),
    outputs=("graph.json", "kernels/", "empty/", "manifest.json"),
    command=ToolCall(arguments=("t",)),
    manifest="manifest.json",
    discoverer=announce,
)


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path, DigestFunction.BLAKE3)


def outputs(store: DiskStore, manifest: bytes = b"[]") -> tuple[FileEntry, ...]:
    return (
        FileEntry(path="graph.json", digest=store.put_bytes(b"{}")),
        FileEntry(path="kernels/deep/é.json", digest=store.put_bytes(b"1"), is_executable=True),
        FileEntry(path="kernels/k0.json", digest=store.put_bytes(b"0")),
        FileEntry(path="manifest.json", digest=store.put_bytes(manifest)),
    )


def test_files_and_directories_come_back(store: DiskStore) -> None:
    made = outputs(store)
    result = reapi.ActionResult.decode(result_of(ACTION, made, store, worker="w").encode())
    assert outputs_of(result, store) == made
    assert store.missing(blobs_of(result)) == ()
    assert [directory.path for directory in result.output_directories] == ["empty", "kernels"]


def test_the_manifest_travels_inside_the_result(store: DiskStore) -> None:
    made = outputs(store, b"[1]")
    result = result_of(ACTION, made, store, worker="w")
    store.path_of(made[-1].digest).unlink()
    assert manifest_of(ACTION, result, store) == b"[1]"


def test_a_manifest_that_is_not_what_its_digest_says_is_not_believed(store: DiskStore) -> None:
    made = outputs(store, b"[1]")
    result = result_of(ACTION, made, store, worker="w")
    forged = tuple(
        dataclasses.replace(file, contents=b"[2]") if file.contents else file for file in result.output_files
    )
    assert manifest_of(ACTION, dataclasses.replace(result, output_files=forged), store) == b"[1]"


def test_a_huge_manifest_stays_in_the_store(store: DiskStore) -> None:
    manifest = b" " * (INLINE_BYTES + 1)
    result = result_of(ACTION, outputs(store, manifest), store, worker="w")
    assert all(not file.contents for file in result.output_files)
    assert manifest_of(ACTION, result, store) == manifest


def test_an_undeclared_output_is_refused(store: DiskStore) -> None:
    with pytest.raises(ValueError, match=r"does not declare its output 'kernels.json'"):
        result_of(ACTION, (FileEntry(path="kernels.json", digest=store.put_bytes(b"")),), store, worker="w")


def test_a_lost_tree_is_a_missing_blob(store: DiskStore) -> None:
    result = result_of(ACTION, outputs(store), store, worker="w")
    store.path_of(result.output_directories[1].tree_digest).unlink()
    with pytest.raises(BlobMissingError):
        outputs_of(result, store)


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "a//b", "."])
def test_paths_out_of_the_actions_directory_are_refused(store: DiskStore, path: str) -> None:
    digest = store.put_bytes(b"x")
    bad = reapi.ActionResult(output_files=(reapi.OutputFile(path=path, digest=digest),))
    with pytest.raises(ValueError, match="not a file name"):
        outputs_of(bad, store)


def test_symbolic_links_are_refused(store: DiskStore) -> None:
    bad = reapi.ActionResult(output_symlinks=(reapi.OutputSymlink(path="a", target="/etc"),))
    with pytest.raises(ValueError, match="symbolic link"):
        outputs_of(bad, store)


def test_a_result_says_that_it_is_true_of_its_machine_only(store: DiskStore) -> None:
    """Beside the key's breakdown, and as something that points to no blob: nobody looks for one."""
    made = outputs(store)
    for cache in CachePolicy:
        action = dataclasses.replace(ACTION, cache=cache)
        key = compute_key(action, (), toolchains={}, implementation="", function=store.function)
        publish(store, store, key, result_of(action, made, store, worker="w"))
        result = store.get(key.digest)
        assert result is not None
        assert stays_here(result) == (cache is CachePolicy.LOCAL)
        assert read_key(store, store, key.digest) is not None
        assert outputs_of(result, store) == made
        assert store.missing(explanation_of(key.digest, result, store)) == ()
        named = ReferenceReader(lambda _: None).of_result(key.digest.hash, result.encode())
        assert len(named.key) == 2, "the Action and the breakdown"


def test_a_result_that_is_remade_is_whole_in_its_shared_form_without_the_files_of_its_directories(
    store: DiskStore, tmp_path: Path
) -> None:
    made = outputs(store)
    action = dataclasses.replace(ACTION, cache=CachePolicy.REMADE)
    key = compute_key(action, (), toolchains={}, implementation="", function=store.function)
    whole = publish(store, store, key, result_of(action, made, store, worker="w"))
    assert outputs_of(whole, store) == made
    assert [directory.path for directory in whole.output_directories] == ["empty", "kernels"], "here it is as any other"
    kept = [entry.digest for entry in made if "/" not in entry.path]
    trees = [directory.tree_digest for directory in whole.output_directories]
    assert kept_files(action, made) == kept
    assert shared_files(whole, made) == [*kept, *trees]

    sent = reapi.ActionResult.decode(shared_form(whole).encode())
    assert shared_form(sent) == sent
    elsewhere = DiskStore(tmp_path / "elsewhere", DigestFunction.BLAKE3)
    named = set(blobs_in(sent))
    assert named == {*kept, *trees} == set(shared_files(sent, made))
    for digest in named:
        elsewhere.put_bytes(store.read(digest))
    assert outputs_of(sent, elsewhere) == made
    elsewhere.put(key.digest, sent)
    references = ReferenceReader(lambda _: None).of_result(key.digest.hash, sent.encode())
    assert references.needed() == {digest.hash for digest in named}
    assert elsewhere.missing(entry.digest for entry in made) == tuple(
        entry.digest for entry in made if "/" in entry.path
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    below=st.dictionaries(
        st.lists(st.sampled_from(["a", "b", "é", "x.py"]), min_size=1, max_size=3).map(tuple),
        st.tuples(st.binary(max_size=4), st.booleans()),
    ),
    named=st.binary(max_size=4),
)
def test_a_shared_form_tells_the_files_of_any_directory(
    store: DiskStore, below: dict[tuple[str, ...], tuple[bytes, bool]], named: bytes
) -> None:
    files = {path: each for path, each in below.items() if not any(path[:end] in below for end in range(1, len(path)))}
    made = [FileEntry(path="out/named", digest=store.put_bytes(named))]
    made += [
        FileEntry(path=f"out/d/{'/'.join(path)}", digest=store.put_bytes(data), is_executable=is_executable)
        for path, (data, is_executable) in files.items()
    ]
    entries = tuple(sorted(made))
    action = dataclasses.replace(
        ACTION, outputs=("out/d/", "out/named"), manifest="", discoverer=None, cache=CachePolicy.REMADE
    )
    whole = result_of(action, entries, store, worker="w")
    sent = reapi.ActionResult.decode(shared_form(whole).encode())
    assert outputs_of(sent, store) == outputs_of(whole, store) == entries
    assert [file.path for file in sent.output_files] == ["out/d", "out/named"]
    assert not sent.output_directories
    assert not stays_here(sent)


def test_the_shared_form_of_any_other_result_is_itself(store: DiskStore) -> None:
    for cache in set(CachePolicy) - {CachePolicy.REMADE}:
        result = result_of(dataclasses.replace(ACTION, cache=cache), outputs(store), store, worker="w")
        assert shared_form(result) is result
        assert shared_files(result, outputs(store)) == [entry.digest for entry in outputs(store)]


def test_the_listing_of_the_code_is_found_by_the_key_and_moves_with_the_explanation(store: DiskStore) -> None:
    key = compute_key(ACTION, (), toolchains={}, implementation="", function=store.function)
    publish(
        store,
        store,
        dataclasses.replace(key, code=b"what the code is"),
        result_of(ACTION, outputs(store), store, worker="w"),
    )
    result, stored = store.get(key.digest), read_key(store, store, key.digest)
    assert result is not None
    assert stored is not None
    assert stored.code is not None
    assert store.read(stored.code) == b"what the code is"
    assert stored.code in explanation_of(key.digest, result, store)
    assert stored.code.hash in ReferenceReader(lambda _: None).of_result(key.digest.hash, result.encode()).key
