"""What is said of the remote cache, by whom, and what holds.

Each setting for itself, the first of these that says it: an option of the command, a variable `MLCBUILD_REMOTE…`, the
user's `settings.toml`, `[remote]` of the root `BUILD.toml`. Who may write, and with which secrets, the last one cannot
say. A mistake is told with the place that made it, and without quoting what may be secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcbuild.cli.settings.source import Said, said_in
from mlcbuild.cli.settings.user_file import UserSettings
from mlcbuild.errors import Location, MlcbuildError, UsageError
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.remote import REMOTE_SETTINGS, has_credentials
from mlcbuild.workspace.schema import Attribute, AttributeKind
from mlcbuild.workspace.settings import WorkspaceSettings

if TYPE_CHECKING:
    from mlcbuild.cache.remote.configuration import RemoteConfiguration
    from mlcbuild.cache.remote.keys import PrivateKey, PublicKey
    from mlcbuild.cache.remote.transport import DigestFunctionError

VARIABLE = "MLCBUILD_REMOTE"
NONE = "none"
# Base64 has no dot and no tilde, and no DER of a key begins with what a slash stands for; 43 digits may be a raw key.
_SURELY_A_PATH = re.compile(r"(?![A-Za-z0-9+/]{43}=?$)([^\n]+\.(pem|key)|(/|~/|\.\.?/)[^\n=]*)")


@dataclass(frozen=True, kw_only=True)
class RemoteFlags:
    """What the command line says of it; "" where it says nothing."""

    address: str = ""
    upload: str = ""
    no_remote: bool = False

    def __post_init__(self) -> None:
        if self.no_remote and self.address not in ("", NONE):
            raise UsageError("--no-remote and --remote contradict each other")
        if has_credentials(self.address):
            raise UsageError(
                "--remote holds a name or a password, which everybody on this machine can read there",
                advice=(f"put the address into the variable {VARIABLE}, or the password into ~/.netrc",),
            )


@dataclass(frozen=True, kw_only=True)
class ResolvedRemote:
    """The configuration that holds, and how to tell that its server and the workspace do not go together."""

    configuration: RemoteConfiguration
    refuse: Callable[[DigestFunctionError], MlcbuildError]

    @property
    def sends_what_was_found(self) -> bool:
        """Whether even a build with nothing to do has something to send."""
        policy = self.configuration.policy
        return policy.sends and policy.upload.value == "always"


def variable_of(setting: str) -> str:
    """The environment variable that says a setting."""
    return VARIABLE if setting == "address" else f"{VARIABLE}_{setting.upper()}"


def resolve_remote(
    flags: RemoteFlags,
    environment: Mapping[str, str],
    user: UserSettings,
    settings: WorkspaceSettings,
    *,
    recache: bool = False,
) -> ResolvedRemote | None:
    """What holds for a build; None where nobody names a remote, or somebody who counts more says `none`. With `recache`
    results take the place of what is there.

    Raises UsageError for options and variables, WorkspaceError for files.
    """
    said: dict[str, Said] = {}
    ranks: dict[str, int] = {}
    sources = (  # from the least to what counts most
        said_in(settings.remote, settings.root),
        said_in(user.remote, user.folder),
        _said_by_variables(environment),
        _said_by_flags(flags),
    )
    for rank, source in enumerate(sources):
        said.update(source)
        ranks.update(dict.fromkeys(source, rank))
    if "role" in said and said["role"].value == NONE and ranks["role"] < ranks.get("address", 0):
        del said["role"]  # Who names an address wants it used, whatever those say who count less.
    address, role, headers = said.get("address"), said.get("role"), said.get("headers")
    if headers is not None and address is not None and not _is_meant_for(headers, address):
        del said["headers"]
    if ranks.get("namespace", 0) == 0:
        said.pop("unsigned", None)  # It was said of a namespace of one's own, and not of one that a workspace chooses.
    if address is None or address.value == NONE or (role is not None and role.value == NONE):
        return None
    return _resolved(said, settings.digest, recache=recache)


def _is_meant_for(headers: Said, address: Said) -> bool:
    """Headers of the user's settings go to the server that stands beside them, and to no other that somebody names."""
    if not isinstance(headers.place, Location):
        return True
    return isinstance(address.place, Location) and address.place.path == headers.place.path


def _said_by_variables(environment: Mapping[str, str]) -> dict[str, Said]:
    """Empty variables say nothing."""
    known = {variable_of(attribute.name): attribute for attribute in REMOTE_SETTINGS}
    said = {}
    for variable in sorted(environment):
        if not variable.startswith(VARIABLE) or not environment[variable]:
            continue
        attribute = known.get(variable)
        if attribute is None:
            raise UsageError(f"unknown variable {variable}", advice=(known_values(variable, known),))
        value = _read_variable(attribute, environment[variable], variable)
        said[attribute.name] = Said(value=value, place=variable, folder=Path.cwd())
    return said


def _read_variable(attribute: Attribute, text: str, variable: str) -> Any:
    """The typed value of a variable: lists have colons between, headers have a line each. Raises UsageError."""
    match attribute.kind:
        case AttributeKind.CHOICE if text not in attribute.allowed:
            raise UsageError(f'{variable}: unknown value "{text}"', advice=(known_values(text, attribute.allowed),))
        case AttributeKind.INTEGER:
            if not (text.isascii() and text.isdigit()):
                raise UsageError(f'{variable} must be a number, not "{text}"')
            return int(text)
        case AttributeKind.STRING_LIST:
            return tuple(part for part in text.split(os.pathsep) if part)
        case AttributeKind.STRING_MAP:
            headers = {}
            for line in filter(None, map(str.strip, text.splitlines())):
                name, mark, value = line.partition(":")
                if not mark:
                    raise UsageError(f"{variable} must hold lines of the form NAME: VALUE")
                headers[name.strip()] = value.strip()
            return headers
        case _:
            return text


def _said_by_flags(flags: RemoteFlags) -> dict[str, Said]:
    said = {}
    folder = Path.cwd()
    if flags.address:
        said["address"] = Said(value=flags.address, place="--remote", folder=folder)
    if flags.upload:
        said["upload"] = Said(value=flags.upload, place="--remote-upload", folder=folder)
        if flags.upload != "never":
            # Who asks for uploads on the command line says with it that he may.
            said["role"] = Said(value="read-write", place="--remote-upload", folder=folder)
    if flags.no_remote:
        said["address"] = Said(value=NONE, place="--no-remote", folder=folder)
    return said


def _resolved(said: Mapping[str, Said], digest: str, *, recache: bool) -> ResolvedRemote:
    from mlcbuild.cache.digest import DigestFunction
    from mlcbuild.cache.remote import configuration as remote
    from mlcbuild.cache.remote.policy import RemotePolicy, Role, Upload
    from mlcbuild.cache.remote.s3.layout import Layout
    from mlcbuild.cache.remote.s3.settings import Addressing, Checksums

    address = said["address"]
    checks: dict[str, Callable[[str], object]] = {
        "address": remote.check_address,
        "namespace": remote.check_namespace,
        "salt": remote.check_salt,
        "endpoint": remote.check_endpoint,
    }
    for name, check in checks.items():
        if name in said:
            with _told_of(said[name]):
                check(said[name].value)

    def text(name: str) -> str:
        return str(said[name].value) if name in said else ""

    drain = said.get("drain_timeout")
    if drain and drain.value < 0:
        raise drain.mistake(f'"drain_timeout" cannot be {drain.value}')
    policy = RemotePolicy(
        role=Role(text("role") or Role.READ.value),
        upload=Upload(text("upload") or Upload.RESULTS.value),
        replaces=recache,
        races=text("slow_answers") != "wait",
        drain_seconds=float(drain.value) if drain else RemotePolicy.drain_seconds,
    )
    with _told_of(address):
        made = remote.RemoteConfiguration(
            address=address.value.rstrip("/"),
            policy=policy,
            namespace=text("namespace"),
            salt=text("salt"),
            trusted_keys=_trusted_keys(said.get("trusted_keys")),
            unsigned_in_namespace=text("unsigned") == "namespace",
            signing_key=_signing_key(said.get("signing_key")) if policy.sends else None,
            server=_server_settings(said, address.value),
            s3=remote.S3Options(
                endpoint=text("endpoint"),
                region=text("region"),
                profile=text("profile"),
                addressing=Addressing(text("addressing") or Addressing.AUTO.value),
                layout=Layout(text("layout") or Layout.NATIVE.value),
                checksums=Checksums(text("checksums") or Checksums.AUTO.value),
            ),
        )
    with _told_of(said.get("layout", address), 'set digest = "sha256" in the [workspace] table, or use another layout'):
        made.check_function(DigestFunction(digest))
    return ResolvedRemote(configuration=made, refuse=lambda error: address.mistake(error.message, *error.advice))


def _server_settings(said: Mapping[str, Said], address: str) -> Any:
    from mlcbuild.cache.remote.settings import Deadlines, ServerSettings

    fields = {"connect_timeout": "connect", "idle_timeout": "idle", "timeout": "whole", "slowest": "bytes_per_second"}
    seconds = {}
    for name, field in fields.items():
        if name in said:
            if not said[name].value > 0:
                raise said[name].mistake(f'"{name}" has to be above 0, not {said[name].value}')
            seconds[field] = float(said[name].value)
    connections = said.get("connections")
    if connections and not 0 < connections.value <= 256:
        raise connections.mistake(f'"connections" has to be from 1 to 256, not {connections.value}')
    certificate, key = said.get("client_certificate"), said.get("client_key")
    for given, other in ((certificate, "client_key"), (key, "client_certificate")):
        if given and other not in said:
            raise given.mistake(f'a certificate and its key go together, and "{other}" is not set')
    headers = said.get("headers")
    given_headers = tuple(headers.value.items()) if headers else ()
    paths = {name: _path(said[name]) for name in ("authorities", "client_certificate", "client_key") if name in said}
    with _told_of(headers or said["address"]):
        return ServerSettings(
            headers=given_headers,
            deadlines=Deadlines(**seconds),
            connections=connections.value if connections else 8 if address.startswith("s3://") else 16,
            **paths,
        )


def _path(said: Said) -> Path:
    return said.folder / Path(said.value).expanduser()


def _trusted_keys(said: Said | None) -> tuple[PublicKey, ...]:
    from mlcbuild.cache.remote.keys import PublicKey, is_private, is_public_line

    keys: list[PublicKey] = []
    for given in said.value if said else ():
        assert said is not None
        if is_public_line(given):
            keys.append(PublicKey.parse(given))
            continue
        if is_private(given):
            raise said.mistake("a private key among those that are trusted: the public one is wanted")
        path = said.folder / Path(given).expanduser()
        try:
            keys.append(PublicKey.parse(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise said.mistake(
                f'"{given}" is neither a public key nor a file with one that can be read: {error.strerror or error}'
            ) from None
        except ValueError as error:
            raise said.mistake(f'"{given}": {error}') from None
    return tuple(dict.fromkeys(keys))


def _signing_key(said: Said | None) -> PrivateKey | None:
    """What is given may be the key itself, where a path was meant too: so only what cannot be one is quoted."""
    from mlcbuild.cache.remote.keys import PrivateKey

    if said is None:
        return None
    text = said.value
    if "PRIVATE KEY-----" not in text:
        what = "the file of the key that signs results"
        try:
            file = _path(said)
        except RuntimeError:
            raise said.mistake(f"{what} cannot be read: it lies in the home of nobody who is known here") from None
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text"
            named = f"{file}, {what}," if _SURELY_A_PATH.fullmatch(said.value) else what
            raise said.mistake(f"{named} cannot be read: {reason}") from None
    try:
        return PrivateKey(pem=text)
    except ValueError as error:
        raise said.mistake(str(error)) from None


class _told_of:  # noqa: N801  # It reads as a statement.
    """Within it, a ValueError is a mistake of who said this."""

    def __init__(self, said: Said, *advice: str) -> None:
        self._said = said
        self._advice = advice

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ValueError):
            raise self._said.mistake(str(error), *self._advice) from None
