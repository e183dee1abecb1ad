"""Which remote cache a command uses: `[remote]`, its variables and options.

The workspace cannot decide who may write and with which secrets. An error quotes nothing that may be secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcbuild.cli.settings.sources import (
    Precedence,
    Setting,
    Settings,
    merged,
    option_setting,
    table_settings,
    variable_settings,
)
from mlcbuild.cli.settings.user_file import user_settings
from mlcbuild.errors import Location, MlcbuildError, UsageError
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.remote import REMOTE_SETTINGS, has_credentials
from mlcbuild.workspace.settings import WorkspaceSettings

if TYPE_CHECKING:
    from mlcbuild.cache.digest import DigestFunction
    from mlcbuild.cache.remote.configuration import RemoteConfiguration
    from mlcbuild.cache.remote.remote_store import RemoteStore
    from mlcbuild.cache.remote.transport import DigestFunctionError

VARIABLE = "MLCBUILD_REMOTE"
NONE = "none"


def variable_of(setting: str) -> str:
    """The environment variable of a setting."""
    return VARIABLE if setting == "address" else f"{VARIABLE}_{setting.upper()}"


_VARIABLES = {variable_of(attribute.name): attribute for attribute in REMOTE_SETTINGS}


@dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """The options of the command line; "" for an option that was not given.

    Raises UsageError for options that contradict each other, and for a password among them.
    """

    address: str = ""
    upload: str = ""
    no_remote: bool = False

    def __post_init__(self) -> None:
        if self.no_remote and self.address not in ("", NONE):
            raise UsageError("--no-remote and --remote contradict each other")
        if has_credentials(self.address):
            raise UsageError(
                "--remote holds a name or a password, and everybody on this machine can read command lines",
                advice=(f"put the address into the variable {VARIABLE}, or the password into ~/.netrc",),
            )


@dataclass(frozen=True, kw_only=True)
class ResolvedRemote:
    """What a command uses. `function_error` turns a server's digest function that does not fit the workspace into an
    error that names the source of the address.
    """

    configuration: RemoteConfiguration
    function_error: Callable[[DigestFunctionError], MlcbuildError]

    @property
    def sends_what_was_found(self) -> bool:
        """Whether a build with nothing to do still has results to send."""
        policy = self.configuration.policy
        return policy.sends and policy.upload.value == "always"

    def open(self, function: DigestFunction) -> RemoteStore | None:
        """A client of the remote cache, to be closed by the caller; None where it is neither read nor written."""
        from mlcbuild.cache.remote.opening import open_remote

        return open_remote(self.configuration, function, map_error=self.function_error)


def resolve_remote(
    options: RemoteOptions,
    environment: Mapping[str, str],
    workspace: WorkspaceSettings,
    *,
    recache: bool = False,
) -> ResolvedRemote | None:
    """Merge all sources; None where no source names a remote, or the one that counts most says `none`.

    With `recache` results replace those that the remote has. Raises UsageError for options and variables,
    WorkspaceError for files.
    """
    user = user_settings(environment)
    settings = merged(
        table_settings(workspace.remote, workspace.root, Precedence.WORKSPACE),
        table_settings(user.remote, user.folder, Precedence.USER_FILE),
        _variable_settings(environment),
        _option_settings(options),
    )
    _drop_what_was_meant_for_another_source(settings)
    if any(name in settings and settings[name].value == NONE for name in ("address", "role")):
        return None
    if "address" not in settings:
        return None
    from mlcbuild.cli.settings.remote_configuration import remote_configuration

    address = settings["address"].source
    return ResolvedRemote(
        configuration=remote_configuration(settings, workspace.digest, recache=recache),
        function_error=lambda error: address.error(error.message, *error.advice),
    )


def _variable_settings(environment: Mapping[str, str]) -> Settings:
    for variable in sorted(environment):
        if variable.startswith(VARIABLE) and environment[variable] and variable not in _VARIABLES:
            raise UsageError(f"unknown variable {variable}", advice=(known_values(variable, _VARIABLES),))
    return variable_settings(environment, _VARIABLES)


def _option_settings(options: RemoteOptions) -> Settings:
    settings = {}
    if options.address:
        settings["address"] = option_setting("--remote", options.address)
    if options.upload:
        settings["upload"] = option_setting("--remote-upload", options.upload)
        if options.upload != "never":
            # Asking for uploads on the command line is the permission to write.
            settings["role"] = option_setting("--remote-upload", "read-write")
    if options.no_remote:
        settings["address"] = option_setting("--no-remote", NONE)
    return settings


def _drop_what_was_meant_for_another_source(settings: Settings) -> None:
    """Three settings count only beside an address or a namespace of the same source or of one that counts less."""
    address, role, headers = settings.get("address"), settings.get("role"), settings.get("headers")
    if address and role and role.value == NONE and role.source.precedence < address.source.precedence:
        del settings["role"]  # A source that names an address wants it used.
    if address and headers and not _is_meant_for(headers, address):
        del settings["headers"]
    namespace = settings.get("namespace")
    if namespace is None or namespace.source.precedence is Precedence.WORKSPACE:
        # The user meant a namespace of his own, not one that a workspace chooses.
        settings.pop("unsigned", None)


def _is_meant_for(headers: Setting, address: Setting) -> bool:
    """Headers in the user's file go only to the server that the same file names."""
    place = headers.source.place
    if not isinstance(place, Location):
        return True
    return isinstance(address.source.place, Location) and address.source.place.path == place.path
