"""The configuration of a remote cache as one checked value, whatever the sources of its settings."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote.keys import PrivateKey, PublicKey
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole
from mlcbuild.cache.remote.s3.layout import Layout
from mlcbuild.cache.remote.s3.settings import Addressing, Checksums, S3Settings
from mlcbuild.cache.remote.settings import ServerSettings

NO_REMOTE = "none"
SCHEMES = ("s3", "http", "https", "grpc", "grpcs")
NAMESPACES = "namespaces"  # the folder of all namespaces, below the address

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,100}")
_SALT = re.compile(r"[ -~]{1,200}")
_SCHEME = re.compile(r"[a-z][a-z0-9+]{0,11}")


@dataclass(frozen=True, kw_only=True)
class S3Options:
    """Settings of a bucket that are not in its address. Empty strings mean what boto finds.

    Raises ValueError, which quotes no credential.
    """

    endpoint: str = ""
    region: str = ""
    profile: str = ""
    addressing: Addressing = Addressing.AUTO
    layout: Layout = Layout.NATIVE
    checksums: Checksums = Checksums.AUTO

    def __post_init__(self) -> None:
        if self.endpoint:
            check_endpoint(self.endpoint)


@dataclass(frozen=True, kw_only=True)
class RemoteConfiguration:
    """The whole configuration of a remote cache. Raises ValueError, which quotes no credential.

    `address` may contain a user name and a password, so messages use `shown`. "" means no remote cache. `namespace` is
    a path below the address: results are read from there first, then from the address, and written only there. `salt`
    is part of the name of every result. With `trusted_keys` a result that none of them signed is a miss, except, with
    `unsigned_in_namespace`, an unsigned result in the namespace.
    """

    address: str = field(default="", repr=False)
    policy: RemotePolicy = field(default_factory=RemotePolicy)
    namespace: str = ""
    salt: str = ""
    trusted_keys: tuple[PublicKey, ...] = ()
    unsigned_in_namespace: bool = False
    signing_key: PrivateKey | None = field(default=None, repr=False)
    server: ServerSettings = field(default_factory=ServerSettings)
    s3: S3Options = field(default_factory=S3Options)

    def __post_init__(self) -> None:
        if self.address:
            check_address(self.address)
        if self.namespace:
            check_namespace(self.namespace)
        if self.salt:
            check_salt(self.salt)
        if self.scheme == "s3":
            self.s3_settings()

    @property
    def scheme(self) -> str:
        return self.address.partition("://")[0]

    @property
    def shown(self) -> str:
        """The address for messages, without credentials; "none" if there is none."""
        return shown_address(self.address) if self.address else NO_REMOTE

    @property
    def is_used(self) -> bool:
        return bool(self.address) and self.policy.role is not RemoteRole.NONE

    def in_namespace(self) -> RemoteConfiguration:
        """The configuration of the namespace: its path below the address."""
        head, mark, tail = self.address.partition("?")
        below = f"{head.rstrip('/')}/{NAMESPACES}/{self.namespace}{mark}{tail}"
        return dataclasses.replace(self, address=below, namespace="")

    def s3_settings(self) -> S3Settings:
        """The settings of an `s3://` address. Raises ValueError."""
        return S3Settings.of_address(
            self.address,
            deadlines=self.server.deadlines,
            connections=self.server.connections,
            **{found.name: getattr(self.s3, found.name) for found in dataclasses.fields(self.s3)},
        )

    def check_function(self, function: DigestFunction) -> None:
        """Raises ValueError if the configuration shows that the remote cache uses another digest function."""
        if self.scheme == "s3" and self.s3.layout is Layout.BAZEL_REMOTE and function is not DigestFunction.SHA256:
            raise ValueError(
                f"a bucket in the layout of bazel-remote names blobs by sha256, and this workspace by {function.value}"
            )


def check_address(text: str) -> None:
    """Raises ValueError for an invalid address. The message contains nothing that may be secret."""
    scheme, mark, rest = text.partition("://")
    if not mark or scheme not in SCHEMES:
        named = f', not "{scheme}://"' if mark and _SCHEME.fullmatch(scheme) else ""
        raise ValueError(f"the address of a remote cache must begin with s3://, http(s):// or grpc(s)://{named}")
    # If a password contains a slash, the rest looks like a path, and the part before it like a port.
    if "@" in (rest.partition("/")[2] if scheme in ("http", "https") else rest):
        raise ValueError("an '@' where a user name and password are not allowed: percent-encode it, or remove them")
    if scheme != "s3":
        try:
            _ = urllib.parse.urlsplit(text).port
        except ValueError:
            raise ValueError(
                "the address of a remote cache needs a host, and its port must be a number up to 65535"
            ) from None
    _PARSERS[scheme](text)


def shown_address(text: str) -> str:
    """An address, valid or not, without anything that may be a credential: user names, passwords, queries."""
    head, mark, rest = text.partition("://")
    shown = f"{head}{mark}{rest.rpartition('@')[2]}" if mark else text.rpartition("@")[2]
    return re.sub(r"[?#].*", "?…", shown, flags=re.DOTALL)


def check_namespace(text: str) -> None:
    """Raises ValueError for an invalid namespace."""
    if not all(_SEGMENT.fullmatch(segment) for segment in text.split("/")):
        raise ValueError(
            f"a namespace may contain letters, digits, '.', '_' and '-', in segments separated by '/': {text!r}"
        )


def check_salt(text: str) -> None:
    """Raises ValueError for an invalid salt."""
    if not _SALT.fullmatch(text):
        raise ValueError("a salt may have at most 200 printable ASCII characters")


def check_endpoint(text: str) -> None:
    """Raises ValueError, like `S3Settings`."""
    if "@" in text:
        raise ValueError("an endpoint must not contain credentials: they are found as the AWS tools find them")
    S3Settings(bucket="any", endpoint=text)


def _check_s3(text: str) -> None:
    S3Settings.of_address(text)


def _check_http(text: str) -> None:
    from mlcbuild.cache.remote.http.address import HttpAddress

    HttpAddress.parse(text)


def _check_grpc(text: str) -> None:
    from mlcbuild.cache.remote.grpc.address import GrpcAddress

    GrpcAddress.parse(text)


_PARSERS: dict[str, Callable[[str], object]] = {
    "s3": _check_s3,
    "http": _check_http,
    "https": _check_http,
    "grpc": _check_grpc,
    "grpcs": _check_grpc,
}
