"""`[remote]`: the remote cache of a workspace, and how to connect to it.

The table may be in the root `BUILD.toml` and in the user's settings. Personal settings, such as credentials and whether
a build writes to the cache, are errors in a `BUILD.toml`, because everybody who clones the workspace has that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcbuild.errors import Location
from mlcbuild.workspace.error_collector import ErrorCollector
from mlcbuild.workspace.schema import Attribute, AttributeKind, AttributeValue
from mlcbuild.workspace.toml import Origin, TomlFile
from mlcbuild.workspace.values import ValueReader, read_table

REMOTE_TABLE = "remote"

ROLES = ("none", "read", "read-write")

_TEXT = AttributeKind.STRING
_SHARED: tuple[Attribute, ...] = (
    Attribute(
        name="address",
        kind=_TEXT,
        doc="s3://bucket/prefix, http(s)://host:port/path, grpc(s)://host:port/instance, or none.",
    ),
    Attribute(
        name="role",
        kind=AttributeKind.CHOICE,
        allowed=ROLES,
        doc="What builds do with it: nothing, reading, or reading and writing.",
    ),
    Attribute(
        name="upload",
        kind=AttributeKind.CHOICE,
        allowed=("never", "results", "always"),
        doc="What to write if writing is allowed: nothing, results of this build, or also results found on this disk.",
    ),
    Attribute(
        name="slow_lookups",
        kind=AttributeKind.CHOICE,
        allowed=("race", "wait"),
        doc="If a lookup takes longer than its action: run the action meanwhile (race), or wait.",
    ),
    Attribute(
        name="namespace",
        kind=_TEXT,
        doc="A path below the address for separate results: read before the address, written instead of it.",
    ),
    Attribute(
        name="salt",
        kind=_TEXT,
        doc="Part of the name of every result. Results with another salt are not found.",
    ),
    Attribute(
        name="trusted_keys",
        kind=AttributeKind.STRING_LIST,
        doc="Public keys, or files with one. A result that none of them signed is a miss.",
    ),
    Attribute(name="endpoint", kind=_TEXT, doc="S3: the server, http(s)://host:port, if it is not AWS."),
    Attribute(name="region", kind=_TEXT, doc="S3: the region of the bucket."),
    Attribute(
        name="addressing",
        kind=AttributeKind.CHOICE,
        allowed=("auto", "path", "virtual"),
        doc="S3: whether requests name the bucket in the path or in the host.",
    ),
    Attribute(
        name="layout",
        kind=AttributeKind.CHOICE,
        allowed=("mlcbuild", "bazel-remote"),
        doc="S3: the names of objects, those of mlcbuild or of bazel-remote.",
    ),
    Attribute(
        name="checksums",
        kind=AttributeKind.CHOICE,
        allowed=("auto", "always", "never"),
        doc="S3: whether uploads have a CRC32.",
    ),
    Attribute(name="authorities", kind=_TEXT, doc="A PEM file with certificates to trust instead of the system's."),
    Attribute(
        name="connections", kind=AttributeKind.INTEGER, minimum=1, doc="The maximum number of simultaneous requests."
    ),
    Attribute(
        name="connect_timeout",
        kind=AttributeKind.INTEGER,
        minimum=1,
        doc="Seconds to connect.",
    ),
    Attribute(
        name="idle_timeout",
        kind=AttributeKind.INTEGER,
        minimum=1,
        doc="Seconds without a byte after which a request fails.",
    ),
    Attribute(
        name="timeout",
        kind=AttributeKind.INTEGER,
        minimum=1,
        doc="Seconds for a request that moves next to nothing.",
    ),
    Attribute(
        name="drain_timeout",
        kind=AttributeKind.INTEGER,
        minimum=0,
        doc="Seconds to wait for uploads at the end of a build.",
    ),
    Attribute(
        name="minimum_throughput",
        kind=AttributeKind.INTEGER,
        minimum=1,
        doc="Bytes per second: slower transfers fail.",
    ),
)
PERSONAL: tuple[Attribute, ...] = (
    Attribute(name="headers", kind=AttributeKind.STRING_MAP, doc="HTTP and gRPC: sent with every request; secret."),
    Attribute(name="signing_key", kind=_TEXT, doc="A PEM file with the private key that signs results; secret."),
    Attribute(
        name="unsigned",
        kind=AttributeKind.CHOICE,
        allowed=("refused", "namespace"),
        doc="With trusted keys: whether unsigned results are refused, or accepted in the namespace.",
    ),
    Attribute(name="profile", kind=_TEXT, doc="S3: the profile in the AWS configuration."),
    Attribute(name="client_certificate", kind=_TEXT, doc="A PEM file with the client certificate and its chain."),
    Attribute(name="client_key", kind=_TEXT, doc="A PEM file with the key of that certificate."),
)
"""Personal settings, which a workspace cannot set."""

REMOTE_SETTINGS: tuple[Attribute, ...] = (*_SHARED, *PERSONAL)
"""The settings in `[remote]`."""

_PERSONAL_NAMES = frozenset(attribute.name for attribute in PERSONAL)


@dataclass(frozen=True, kw_only=True)
class RemoteTable:
    """The table of one file. `values` has the settings in it, without defaults."""

    values: Mapping[str, AttributeValue] = field(repr=False)  # may hold credentials
    origin: Origin = field(repr=False)

    def location(self, name: str) -> Location:
        return self.origin.at(name).location


def read_remote(file: TomlFile, errors: ErrorCollector, *, personal: bool = False) -> RemoteTable:
    """Read the `[remote]` table of a file. `personal`: it is the user's file. Errors are collected
    and quote no secret.
    """
    origin = Origin(file, (REMOTE_TABLE,))
    owner = f"[{REMOTE_TABLE}]"
    reader = ValueReader(owner=owner, package="", errors=errors)
    raw: Any = file.content[REMOTE_TABLE]
    if type(raw) is dict:
        raw = dict(raw)
        if not personal:
            _check_personal(raw, origin, errors)
        _check_secrets(raw, origin, errors)
    return RemoteTable(values=read_table(raw, REMOTE_SETTINGS, origin, reader), origin=origin)


def _check_personal(raw: dict[str, Any], origin: Origin, errors: ErrorCollector) -> None:
    for name in sorted(_PERSONAL_NAMES & raw.keys()):
        del raw[name]
        errors.add(
            f'"{name}" in [{REMOTE_TABLE}] is a personal setting, which BUILD.toml must not contain',
            origin.at(name),
            f"set it in $XDG_CONFIG_HOME/mlcbuild/settings.toml or in the variable MLCBUILD_REMOTE_{name.upper()}",
            of_key=True,
        )
    if raw.get("role") == "read-write":
        del raw["role"]
        errors.add(
            f'"role" in [{REMOTE_TABLE}] cannot be "read-write" in BUILD.toml, which everybody has',
            origin.at("role"),
            "allowed here: none, read",
            "to write, use --remote-upload=results, MLCBUILD_REMOTE_ROLE=read-write, or the user's settings",
        )
    address = raw.get("address")
    if isinstance(address, str) and has_credentials(address):
        del raw["address"]
        errors.add(
            f'"address" in [{REMOTE_TABLE}] contains a user name or a password',
            origin.at("address"),
            "put them into the variable MLCBUILD_REMOTE, ~/.netrc, or the user's settings",
        )


def _check_secrets(raw: dict[str, Any], origin: Origin, errors: ErrorCollector) -> None:
    """Type checks that do not quote the value, unlike all others."""
    headers = raw.get("headers")
    if headers is not None and not (type(headers) is dict and all(type(value) is str for value in headers.values())):
        del raw["headers"]
        errors.add(f'"headers" in [{REMOTE_TABLE}] must be a table of strings', origin.at("headers"))
    signing_key = raw.get("signing_key")
    if signing_key is not None and type(signing_key) is not str:
        del raw["signing_key"]
        errors.add(f'"signing_key" in [{REMOTE_TABLE}] must be a string', origin.at("signing_key"))


def has_credentials(address: str) -> bool:
    """Whether it contains an `@`, which follows a user name or password, also in an invalid address."""
    return "@" in address
