"""A small release of made-up files, in a folder, for tests that spoil it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as elliptic
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mlcbuild.release.contents import (
    ActionKey,
    Digested,
    DistributionInfo,
    Material,
    ModelInfo,
    ReleaseContents,
    ReleaseFile,
    RevisionInfo,
    SourceInfo,
    TargetInfo,
    ToolchainInfo,
)
from mlcbuild.release.folder_destination import FolderDestination
from mlcbuild.release.making import MadeRelease, make_release
from mlcbuild.release.signing import PrivateKey, sign
from mlcbuild.release.statement import statement


def new_key(kind: str = "ed25519") -> PrivateKey:
    """A fresh key."""
    made = Ed25519PrivateKey.generate() if kind == "ed25519" else elliptic(SECP256R1())
    return PrivateKey(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def data_file(path: str, text: str, *, is_executable: bool = False) -> ReleaseFile:
    data = text.encode()
    return ReleaseFile(
        path=path,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        is_executable=is_executable,
        data=data,
    )


def contents(**others: Any) -> ReleaseContents:
    """A package of a model that was fetched, with everything that can be said of it."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    values: dict[str, Any] = {
        "name": "example",
        "version": "1.0",
        "configuration": "default",
        "overrides": (),
        "targets": (
            TargetInfo(
                label="//models:m-cpu",
                rule="model_package",
                folder="models/m-cpu",
                models=("//models:m",),
                quantization="q4f16_1",
                platform="@platforms//:cpu",
                toolchains=("tvm",),
                files=(
                    data_file("models/m-cpu/lib.so", "library", is_executable=True),
                    data_file("models/m-cpu/params_shard_0.bin", "weights"),
                ),
            ),
        ),
        "models": (
            ModelInfo(
                label="//models:m",
                family="llama",
                license="Apache-2.0 OR LicenseRef-own",
                license_where="README.md",
                license_link="https://example.com/terms",
                license_texts=("licenses/models/m/LICENSE",),
                source=SourceInfo(
                    name="//models:hub",
                    origin=Material(
                        name="//models:hub",
                        uri=f"pkg:huggingface/owner/name@{commit}",
                        digests=(Digested(algorithm="gitCommit", value=commit),),
                    ),
                    files=(
                        Material(name="//models:hub/a", digests=(Digested(algorithm="sha256", value="a" * 64),)),
                        Material(name="//models:hub/b", digests=(Digested(algorithm="blake3", value="b" * 64),)),
                    ),
                ),
            ),
        ),
        "toolchains": (
            ToolchainInfo(
                name="tvm",
                version="0.27",
                fingerprint="f" * 64,
                distributions=(DistributionInfo(name="apache-tvm", version="0.27", license="Apache-2.0"),),
            ),
        ),
        "texts": (data_file("licenses/models/m/LICENSE", "terms"),),
        "keys": (ActionKey(action="//models:m-cpu Link", key=Digested(algorithm="blake3", value="c" * 64)),),
        "builder": "urn:mlcbuild:builder:command-line",
        "builder_version": "0.1.0",
        "revision": RevisionInfo(commit=commit, uri="git+https://example.com/w", is_changed=False),
    }
    return ReleaseContents(**{**values, **others})


def written(folder: Path, key: PrivateKey | None) -> MadeRelease:
    """The release, in `folder`."""
    made = make_release(contents(), key)
    FolderDestination(folder).write(made.files, told=lambda _count: None)
    return made


def signed_anew(folder: Path, key: PrivateKey, change: Callable[[dict[str, Any]], object]) -> None:
    """Sign a statement that `change` has changed, as somebody with the key could."""
    files = make_release(contents(), key).files
    document = json.loads(statement(contents(), files[:-1]))
    change(document)
    (folder / "provenance.sigstore.json").write_bytes(sign(json.dumps(document).encode(), key))
