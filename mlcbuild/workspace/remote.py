"""`[remote]`: the cache that a workspace shares with others, and how it is reached.

The same table stands in the root `BUILD.toml` and in a user's own settings. What only a user may say of himself,
whether he writes there and with which credentials, is a mistake in a file that everybody who clones it has.
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
        doc="What is done with it: nothing, reading, or reading and writing.",
    ),
    Attribute(
        name="upload",
        kind=AttributeKind.CHOICE,
        allowed=("never", "results", "always"),
        doc="What is written where that is allowed: nothing, what ran here, or what was found on this disk as well.",
    ),
    Attribute(
        name="slow_answers",
        kind=AttributeKind.CHOICE,
        allowed=("race", "wait"),
        doc="Of a look-up that takes longer than its action would: the action runs meanwhile, or waits.",
    ),
    Attribute(
        name="namespace",
        kind=_TEXT,
        doc="A place of its own for results, read before the address itself and written instead of it.",
    ),
    Attribute(
        name="salt",
        kind=_TEXT,
        doc="Part of the name of every result: with another salt, all that is there counts as absent.",
    ),
    Attribute(
        name="trusted_keys",
        kind=AttributeKind.STRING_LIST,
        doc="Public keys, or files with one: what none of them signed is a miss.",
    ),
    Attribute(name="endpoint", kind=_TEXT, doc="S3: the server, http(s)://host:port, where it is not AWS."),
    Attribute(name="region", kind=_TEXT, doc="S3: the region of the bucket."),
    Attribute(
        name="addressing",
        kind=AttributeKind.CHOICE,
        allowed=("auto", "path", "virtual"),
        doc="S3: whether the bucket is named in the path or in the host.",
    ),
    Attribute(
        name="layout",
        kind=AttributeKind.CHOICE,
        allowed=("mlcbuild", "bazel-remote"),
        doc="S3: what lies where, ours or that of a bazel-remote on the same bucket.",
    ),
    Attribute(
        name="checksums",
        kind=AttributeKind.CHOICE,
        allowed=("auto", "always", "never"),
        doc="S3: whether uploads carry a CRC32.",
    ),
    Attribute(name="authorities", kind=_TEXT, doc="A PEM file: the certificates to trust instead of the system's."),
    Attribute(name="connections", kind=AttributeKind.INTEGER, minimum=1, doc="The most requests at once."),
    Attribute(
        name="connect_timeout",
        kind=AttributeKind.INTEGER,
        minimum=1,
        doc="Seconds until a connection is given up.",
    ),
    Attribute(
        name="idle_timeout",
        kind=AttributeKind.INTEGER,
        minimum=1,
        doc="Seconds without a byte until a request ends.",
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
        doc="Seconds that the end of a build waits for uploads.",
    ),
    Attribute(
        name="slowest",
        kind=AttributeKind.INTEGER,
        minimum=1,
        doc="Bytes a second: a slower transfer is given up.",
    ),
)
PERSONAL: tuple[Attribute, ...] = (
    Attribute(name="headers", kind=AttributeKind.STRING_MAP, doc="HTTP and gRPC: sent with every request; secret."),
    Attribute(name="signing_key", kind=_TEXT, doc="A PEM file: the private key that signs results; secret."),
    Attribute(
        name="unsigned",
        kind=AttributeKind.CHOICE,
        allowed=("refused", "namespace"),
        doc="Where keys are trusted: what nobody signed is refused, or believed in the namespace and nowhere else.",
    ),
    Attribute(name="profile", kind=_TEXT, doc="S3: the profile of the AWS settings."),
    Attribute(name="client_certificate", kind=_TEXT, doc="A PEM file: our certificate, with the chain."),
    Attribute(name="client_key", kind=_TEXT, doc="A PEM file: the key of that certificate."),
)
"""What only a user may say of himself."""

REMOTE_SETTINGS: tuple[Attribute, ...] = (*_SHARED, *PERSONAL)
"""What `[remote]` may say."""

_PERSONAL_NAMES = frozenset(attribute.name for attribute in PERSONAL)


@dataclass(frozen=True, kw_only=True)
class RemoteTable:
    """What a file says; `values` holds what it names itself, and no defaults."""

    values: Mapping[str, AttributeValue] = field(repr=False)  # may hold credentials
    origin: Origin = field(repr=False)

    def location(self, name: str) -> Location:
        return self.origin.at(name).location


def read_remote(file: TomlFile, errors: ErrorCollector, *, personal: bool = False) -> RemoteTable:
    """The `[remote]` table of a file; `personal` where it is a user's own. Mistakes are noted, and quote no secret."""
    origin = Origin(file, (REMOTE_TABLE,))
    owner = f"[{REMOTE_TABLE}]"
    reader = ValueReader(owner=owner, package="", errors=errors)
    raw: Any = file.content[REMOTE_TABLE]
    if type(raw) is dict:
        raw = dict(raw)
        if not personal:
            _refuse_personal(raw, origin, errors)
        _refuse_secrets_in_wrong_places(raw, origin, errors)
    return RemoteTable(values=read_table(raw, REMOTE_SETTINGS, origin, reader), origin=origin)


def _refuse_personal(raw: dict[str, Any], origin: Origin, errors: ErrorCollector) -> None:
    for name in sorted(_PERSONAL_NAMES & raw.keys()):
        del raw[name]
        errors.add(
            f'"{name}" in [{REMOTE_TABLE}] belongs into the settings of who builds, not into a file that all have',
            origin.at(name),
            f"put it into $XDG_CONFIG_HOME/mlcbuild/settings.toml or the variable MLCBUILD_REMOTE_{name.upper()}",
            of_key=True,
        )
    if raw.get("role") == "read-write":
        del raw["role"]
        errors.add(
            f'"role" in [{REMOTE_TABLE}] cannot be "read-write" for everybody who has this file',
            origin.at("role"),
            "known here: none, read",
            "who writes says so: --remote-upload=results, MLCBUILD_REMOTE_ROLE=read-write, or the user's settings",
        )
    address = raw.get("address")
    if isinstance(address, str) and has_credentials(address):
        del raw["address"]
        errors.add(
            f'"address" in [{REMOTE_TABLE}] holds a name or a password',
            origin.at("address"),
            "put them into the variable MLCBUILD_REMOTE, ~/.netrc, or the user's settings",
        )


def _refuse_secrets_in_wrong_places(raw: dict[str, Any], origin: Origin, errors: ErrorCollector) -> None:
    """Other checks quote the value that they refuse; these do not."""
    headers = raw.get("headers")
    if headers is not None and not (type(headers) is dict and all(type(value) is str for value in headers.values())):
        del raw["headers"]
        errors.add(f'"headers" in [{REMOTE_TABLE}] must be a table of strings', origin.at("headers"))
    signing_key = raw.get("signing_key")
    if signing_key is not None and type(signing_key) is not str:
        del raw["signing_key"]
        errors.add(f'"signing_key" in [{REMOTE_TABLE}] must be a string', origin.at("signing_key"))


def has_credentials(address: str) -> bool:
    """Whether it holds an `@`, which a name and a password stand before, whatever else is wrong with it."""
    return "@" in address
