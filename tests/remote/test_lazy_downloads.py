"""«Without the bytes»: a build downloads the outputs that were asked for and the inputs of what runs, and nothing else.

Every request to the bucket is seen by a proxy. What may be asked for is worked out from the results alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.reapi import Action, ActionResult, Directory
from tests.end_to_end.surroundings import Surroundings, usual
from tests.remote.fault_proxy import FaultProxy, faulty
from tests.remote.filled import CUDA_LIBRARY, Bucket, Built, build, clone, with_variables

pytestmark = pytest.mark.slow

INLINE_BYTES = 16 << 10  # Outputs up to this size come with the result that names them.
FUNCTION = DigestFunction.BLAKE3


@pytest.fixture
def observed(filled: Bucket) -> Iterator[FaultProxy]:
    with faulty(filled.server.port) as proxy:
        yield proxy


def place_of(folder: Path, bucket: Bucket, proxy: FaultProxy) -> Surroundings:
    place = usual(folder)
    clone(bucket.checkout, place)
    return with_variables(place, **bucket.variables(endpoint=proxy.endpoint))


def asked_for(proxy: FaultProxy, kind: str) -> list[str]:
    """The hashes of what was read, `cas` or `ac`, once for each request."""
    assert {request.method for request in proxy.requests} <= {"GET", "HEAD"}, "who may read only only reads"
    return [request.path.rpartition("/")[2] for request in proxy.requests if f"/{kind}/" in request.path]


def trees(result: ActionResult) -> set[str]:
    return {directory.tree_digest.hash for directory in result.output_directories}


def large_outputs(built: Built, *identifiers: str) -> set[str]:
    """Output files that do not travel in results; those of discovering actions' manifests always do."""
    return {
        file.digest.hash
        for identifier in identifiers
        for file in built.result(identifier).output_files
        if file.digest.size_bytes > INLINE_BYTES
    }


def inputs_of(built: Built, identifier: str) -> set[str]:
    """What an action that ran has read, as its key says."""
    store = built.store

    def read(name: str) -> bytes:
        size = (built.place.cache / "v1/blake3/cas" / name[:2] / name).stat().st_size
        return store.read(Digest(name, size))

    found, waiting = set[str](), [Action.decode(read(built.keys[identifier])).input_root_digest]
    while waiting:
        directory = Directory.decode(store.read(waiting.pop()))
        found |= {file.digest.hash for file in directory.files}
        waiting += [each.digest for each in directory.directories]
    return found


def test_of_a_library_that_is_found_the_library_alone_is_fetched(
    filled: Bucket, observed: FaultProxy, tmp_path: Path
) -> None:
    built = build(place_of(tmp_path, filled, observed), CUDA_LIBRARY)
    assert set(built.statuses.values()) == {"remote_hit"}
    # One question an action, and none asked twice.
    assert sorted(asked_for(observed, "ac")) == sorted(set(built.keys.values()))
    (library,) = (content for path, (content, _) in built.placed().items())
    wanted = {FUNCTION.of_bytes(library).hash}
    of_trees = {tree for identifier in built.keys for tree in trees(built.result(identifier))}
    fetched = asked_for(observed, "cas")
    assert sorted(fetched) == sorted(wanted | of_trees)
    # The weights, the modules of every phase, the kernels and their texts stay where they are.
    intermediate = large_outputs(built, *(name for name in built.keys if not name.endswith(" Link")))
    assert len(intermediate) > 8
    assert not intermediate & built.blobs_here()
    everything = sum(
        file.digest.size_bytes for identifier in built.keys for file in built.result(identifier).output_files
    )
    # Besides: results, with the small outputs that travel in them.
    assert len(library) < built.report["bytes"]["downloaded"] < len(library) * 2 < everything / 5


def test_of_what_runs_the_inputs_are_fetched(filled: Bucket, observed: FaultProxy, tmp_path: Path) -> None:
    place = place_of(tmp_path, filled, observed)
    text = (place.root / "BUILD.toml").read_text()
    place.write("BUILD.toml", text.replace("context_window_size = 64", "context_window_size = 80").encode())
    built = build(place, CUDA_LIBRARY)
    ran = {name for name, status in built.statuses.items() if status == "executed_local"}
    assert {name.split(" ")[1] for name in ran} == {"ConfigureModel", "Lower", "Link"}
    assert set(built.statuses.values()) == {"executed_local", "remote_hit"}
    made_here = {file.digest.hash for name in ran for file in built.result(name).output_files}
    came_inside = {
        file.digest.hash
        for name in built.keys.keys() - ran
        for file in built.result(name).output_files
        if file.digest.size_bytes <= INLINE_BYTES
    }
    read = {digest for name in ran for digest in inputs_of(built, name)}
    of_trees = {tree for name in built.keys.keys() - ran for tree in trees(built.result(name))}
    assert len(read & came_inside) > 50, "objects of small kernels and the like"
    assert sorted(asked_for(observed, "cas")) == sorted((read - made_here - came_inside) | of_trees)
    # Phases hand on modules which nothing here reads; texts of kernels are read by nobody either.
    for mnemonic in ("Export", "Phase1", "Phase2", "Phase3", "ImportWeights", "Fetch"):
        of_it = large_outputs(built, *(name for name in built.keys if name.split(" ")[1] == mnemonic))
        assert not of_it & built.blobs_here()
