"""From merged settings to the configuration of a remote cache.

The configuration checks its own values. Settings are put into it one after the other, so that an error names the
source of the setting that causes it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote.configuration import RemoteConfiguration, S3Options
from mlcbuild.cache.remote.keys import PrivateKey, PublicKey, is_private, is_public_line
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole, Upload
from mlcbuild.cache.remote.s3.layout import Layout
from mlcbuild.cache.remote.s3.settings import Addressing, Checksums
from mlcbuild.cache.remote.settings import Deadlines, ServerSettings
from mlcbuild.cli.settings.sources import Setting, Settings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Values = TypeVar("_Values", bound="DataclassInstance")

_S3_CONNECTIONS = 8
# Base64 has no dot and no tilde, and no DER of a key begins with what a slash stands for; 43 digits may be a raw key.
_SURELY_A_PATH = re.compile(r"(?![A-Za-z0-9+/]{43}=?$)([^\n]+\.(pem|key)|(/|~/|\.\.?/)[^\n=]*)")

ValueReader = Callable[[Any], Any]
# For each setting: the field that it sets, and how its value becomes that of the field.
_POLICY: dict[str, tuple[str, ValueReader]] = {
    "role": ("role", RemoteRole),
    "upload": ("upload", Upload),
    "slow_lookups": ("races", lambda answer: answer != "wait"),
    "drain_timeout": ("drain_seconds", float),
}
_DEADLINES: dict[str, tuple[str, ValueReader]] = {
    "connect_timeout": ("connect", float),
    "idle_timeout": ("idle", float),
    "timeout": ("total", float),
    "minimum_throughput": ("bytes_per_second", float),
}
_SERVER: dict[str, tuple[str, ValueReader]] = {
    "headers": ("headers", lambda headers: tuple(headers.items())),
    "connections": ("connections", int),
}
_S3: dict[str, tuple[str, ValueReader]] = {
    "endpoint": ("endpoint", str),
    "region": ("region", str),
    "profile": ("profile", str),
    "addressing": ("addressing", Addressing),
    "layout": ("layout", Layout),
    "checksums": ("checksums", Checksums),
}
_CONFIGURATION: dict[str, tuple[str, ValueReader]] = {
    "namespace": ("namespace", str),
    "salt": ("salt", str),
    "unsigned": ("unsigned_in_namespace", lambda unsigned: unsigned == "namespace"),
}


def remote_configuration(settings: Settings, digest: str, *, recache: bool) -> RemoteConfiguration:
    """The configuration of the remote that `address`, which must be set, names.

    Raises UsageError for options and variables, WorkspaceError for files.
    """
    address = settings["address"]
    with address.source.names_errors():
        made = RemoteConfiguration(address=address.value.rstrip("/"))
    made = _with(made, _CONFIGURATION, settings)
    policy = _with(RemotePolicy(replaces=recache), _POLICY, settings)
    made = dataclasses.replace(
        made,
        policy=policy,
        trusted_keys=_trusted_keys(settings.get("trusted_keys")),
        signing_key=_signing_key(settings.get("signing_key")) if policy.sends else None,
        server=_server_settings(settings, made.scheme),
    )
    s3 = _with(S3Options(), _S3, settings)
    with settings.get("endpoint", address).source.names_errors():
        made = dataclasses.replace(made, s3=s3)
    advice = 'set digest = "sha256" in the [workspace] table, or use another layout'
    with settings.get("layout", address).source.names_errors(advice):
        made.check_function(DigestFunction(digest))
    return made


def _with(value: _Values, fields: dict[str, tuple[str, ValueReader]], settings: Settings) -> _Values:
    """`value` with those of its fields that settings set."""
    for name, (field, read) in fields.items():
        if name in settings:
            with settings[name].source.names_errors():
                value = dataclasses.replace(value, **{field: read(settings[name].value)})
    return value


def _server_settings(settings: Settings, scheme: str) -> ServerSettings:
    server = ServerSettings(deadlines=_with(Deadlines(), _DEADLINES, settings))
    if scheme == "s3":
        server = dataclasses.replace(server, connections=_S3_CONNECTIONS)
    server = _with(server, _SERVER, settings)
    files = {name: settings[name] for name in ("authorities", "client_certificate", "client_key") if name in settings}
    if not files:
        return server
    paths: dict[str, Any] = {name: setting.path() for name, setting in files.items()}
    # The last one is half of the pair whose other half may be missing.
    with list(files.values())[-1].source.names_errors():
        return dataclasses.replace(server, **paths)


def _trusted_keys(setting: Setting | None) -> tuple[PublicKey, ...]:
    if setting is None:
        return ()
    keys: list[PublicKey] = []
    for given in setting.value:
        if is_public_line(given):
            keys.append(PublicKey.parse(given))
            continue
        if is_private(given):
            raise setting.source.error("a private key among the trusted keys; give the public key")
        path = dataclasses.replace(setting, value=given).path()
        try:
            keys.append(PublicKey.parse(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise setting.source.error(
                f'"{given}" is neither a public key nor a readable file with one: {error.strerror or error}'
            ) from None
        except ValueError as error:
            raise setting.source.error(f'"{given}": {error}') from None
    return tuple(dict.fromkeys(keys))


def _signing_key(setting: Setting | None) -> PrivateKey | None:
    """The value is a path or the key itself. Only what cannot be a key is quoted in an error."""
    if setting is None:
        return None
    text = setting.value
    if "PRIVATE KEY-----" not in text:
        what = "the file of the signing key"
        file = setting.path()
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            named = f"{file}, {what}," if _SURELY_A_PATH.fullmatch(setting.value) else what
            raise setting.source.error(f"{named} cannot be read: {reason}") from None
    with setting.source.names_errors():
        return PrivateKey(pem=text)
