"""Which remote cache is used: sources of settings, their order, what each may set, and errors in them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.cache.remote.policy import RemoteRole, Upload
from mlcbuild.cli.settings.remote import RemoteOptions, resolve_remote, variable_of
from mlcbuild.cli.settings.user_file import user_settings_file
from mlcbuild.errors import MlcbuildError, UsageError, WorkspaceError
from mlcbuild.workspace.remote import PERSONAL, REMOTE_SETTINGS
from mlcbuild.workspace.settings import load_settings

SECRET = "hunter2-XYZZY"
PUBLIC = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="


class World:
    """A workspace, a user's settings, an environment."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "workspace"
        self.root.mkdir()
        self.environment: dict[str, str] = {"XDG_CONFIG_HOME": str(folder / "config")}
        self.user_file = user_settings_file(self.environment)
        self.user_file.parent.mkdir(parents=True)
        self.workspace("")

    def workspace(self, remote: str, *, digest: str = "blake3") -> None:
        table = f"[remote]\n{remote}\n" if remote else ""
        (self.root / "BUILD.toml").write_text(f'[workspace]\nname = "w"\ndigest = "{digest}"\n\n{table}')

    def user(self, remote: str) -> None:
        self.user_file.write_text(f"[remote]\n{remote}\n")

    def found(self, options: RemoteOptions | None = None, /, **variables: str) -> RemoteConfiguration | None:
        environment = {**self.environment, **{variable_of(name): value for name, value in variables.items()}}
        resolved = resolve_remote(options or RemoteOptions(), environment, load_settings(self.root))
        return resolved.configuration if resolved else None

    def made(self, options: RemoteOptions | None = None, /, **variables: str) -> RemoteConfiguration:
        found = self.found(options, **variables)
        assert found is not None
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World(tmp_path)


def test_without_settings_there_is_no_remote(world: World) -> None:
    assert world.found() is None


def test_an_option_counts_more_than_a_variable_than_the_users_file_than_the_workspace(world: World) -> None:
    world.workspace('address = "s3://workspace/a"\nregion = "from-workspace"\nsalt = "from-workspace"')
    assert world.made().shown == "s3://workspace/a"
    world.user('address = "s3://user/a"\nsalt = "from-user"\nconnections = 3')
    assert world.made().shown == "s3://user/a"
    assert world.made(address="s3://variable/a").shown == "s3://variable/a"
    options = RemoteOptions(address="s3://flag/a")
    made = world.made(options, address="s3://variable/a", connections="5")
    assert made.shown == "s3://flag/a"
    # Each setting for itself.
    assert (made.s3.region, made.salt, made.server.connections) == ("from-workspace", "from-user", 5)


@pytest.mark.parametrize("say_none", ["flag", "flag address", "variable", "role", "user", "workspace"])
def test_a_source_that_counts_more_can_say_none(world: World, say_none: str) -> None:
    world.workspace('address = "none"' if say_none == "workspace" else 'address = "s3://workspace/a"')
    options, variables = RemoteOptions(), {}
    match say_none:
        case "flag":
            options = RemoteOptions(no_remote=True)
        case "flag address":
            options = RemoteOptions(address="none")
        case "variable":
            variables = {"address": "none"}
        case "role":
            variables = {"role": "none"}
        case "user":
            world.user('address = "none"')
    assert world.found(options, **variables) is None


def test_an_address_is_used_although_a_source_that_counts_less_says_role_none(world: World) -> None:
    world.workspace('address = "s3://workspace/a"\nrole = "none"')
    assert world.made(RemoteOptions(address="s3://flag/a")).policy.role is RemoteRole.READ
    assert world.made(RemoteOptions(address="s3://flag/a"), role="none").policy.role is RemoteRole.READ
    assert world.found(address="s3://variable/a", role="none") is None


def test_reads_are_the_default_and_writes_are_opt_in(world: World) -> None:
    world.workspace('address = "https://cache.example/main"\nupload = "always"')
    policy = world.made().policy
    assert (policy.role, policy.upload, policy.sends) == (RemoteRole.READ, Upload.ALWAYS, False)
    assert world.made(role="read-write").policy.sends
    assert world.made(RemoteOptions(upload="results")).policy.sends
    assert not world.made(RemoteOptions(upload="never"), role="read-write").policy.sends
    world.user('role = "read-write"')
    assert world.made().policy.sends
    assert not world.made(role="read").policy.sends


def test_a_workspace_may_lower_the_role_and_not_raise_it(world: World) -> None:
    world.workspace('address = "s3://workspace/a"\nrole = "none"')
    assert world.found() is None
    assert world.made(role="read").policy.role is RemoteRole.READ
    world.workspace('address = "s3://workspace/a"\nrole = "read-write"')
    with pytest.raises(WorkspaceError) as refused:
        world.found()
    assert str(refused.value) == (
        'BUILD.toml:7:8: "role" in [remote] cannot be "read-write" in BUILD.toml, which everybody has\n'
        "  allowed here: none, read\n"
        "  to write, use --remote-upload=results, MLCBUILD_REMOTE_ROLE=read-write, or the user's settings"
    )


@pytest.mark.parametrize("setting", [attribute.name for attribute in PERSONAL])
def test_a_workspace_cannot_set_what_belongs_to_the_user(world: World, setting: str) -> None:
    value = f'{{ Authorization = "{SECRET}" }}' if setting == "headers" else f'"{SECRET}"'
    world.workspace(f'address = "s3://workspace/a"\n{setting} = {value}')
    with pytest.raises(WorkspaceError) as refused:
        world.found()
    assert str(refused.value) == (
        f'BUILD.toml:7:1: "{setting}" in [remote] is a personal setting, which BUILD.toml must not contain\n'
        "  set it in $XDG_CONFIG_HOME/mlcbuild/settings.toml or in the variable "
        f"MLCBUILD_REMOTE_{setting.upper()}"
    )


def test_every_setting_reaches_the_configuration(world: World, tmp_path: Path) -> None:
    for name in ("ca.pem", "client.pem", "client.key"):
        (world.user_file.parent / name).touch()
    key = world.user_file.parent / "ci.key"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    (world.root / "ci.pub").write_text(f"-----BEGIN PUBLIC KEY-----\n{PUBLIC}\n-----END PUBLIC KEY-----\n")
    world.workspace(
        'trusted_keys = ["ci.pub"]\nnamespace = "pull/12"\nsalt = "2"\nminimum_throughput = 1000\ndrain_timeout = 9',
        digest="sha256",
    )
    world.user(
        'address = "s3://bucket/p/"\nrole = "read-write"\nupload = "always"\nendpoint = "http://localhost:1"\n'
        'region = "r"\naddressing = "path"\nlayout = "bazel-remote"\nchecksums = "never"\nprofile = "ci"\n'
        'authorities = "ca.pem"\nclient_certificate = "client.pem"\nclient_key = "client.key"\n'
        'connections = 4\nconnect_timeout = 1\nidle_timeout = 2\ntimeout = 3\nsigning_key = "ci.key"\n'
        'unsigned = "namespace"\nslow_lookups = "wait"\n'
        f'headers = {{ Authorization = "Bearer {SECRET}" }}'
    )
    names = {setting.name for setting in REMOTE_SETTINGS}
    said = {name for name in world.user_file.read_text().split() if name in names}
    assert said | {"trusted_keys", "namespace", "salt", "minimum_throughput", "drain_timeout"} == names
    made = world.made()
    assert not made.unsigned_in_namespace, "the namespace is the workspace's"
    assert world.made(namespace="pull/12").unsigned_in_namespace
    assert not world.made(namespace="pull/12", unsigned="refused").unsigned_in_namespace
    assert not made.policy.replaces
    assert not made.policy.races
    assert world.made(slow_lookups="race").policy.races
    again = resolve_remote(RemoteOptions(), world.environment, load_settings(world.root), recache=True)
    assert again is not None
    assert again.configuration.policy.replaces
    assert (made.address, made.namespace, made.salt) == ("s3://bucket/p", "pull/12", "2")
    assert made.in_namespace().address == "s3://bucket/p/namespaces/pull/12"
    assert [key.line for key in made.trusted_keys] == [PUBLIC]
    assert made.signing_key is not None
    assert made.signing_key.pem == key.read_text()
    settings = made.s3_settings()
    assert (settings.bucket, settings.prefix, settings.endpoint) == ("bucket", "p", "http://localhost:1")
    assert (settings.region, settings.profile, settings.connections) == ("r", "ci", 4)
    assert (settings.addressing.value, settings.layout.value, settings.checksums.value) == (
        "path",
        "bazel-remote",
        "never",
    )
    deadlines = made.server.deadlines
    assert (deadlines.connect, deadlines.idle, deadlines.total, deadlines.bytes_per_second) == (1, 2, 3, 1000)
    assert made.server.headers == (("Authorization", f"Bearer {SECRET}"),)
    assert made.policy.drain_seconds == 9
    assert made.server.authorities == world.user_file.parent / "ca.pem"
    assert made.server.client_key == world.user_file.parent / "client.key"
    assert SECRET not in repr(made)


def test_variables_set_the_same(world: World) -> None:
    made = world.made(
        address=f"https://user:{SECRET}@cache.example/x",
        headers=f"Authorization: Bearer {SECRET}\n\nX-Other: a:b\n",
        trusted_keys=f"{PUBLIC}:",
        timeout="7",
    )
    assert made.shown == "https://cache.example/x"
    assert made.server.headers == (("Authorization", f"Bearer {SECRET}"), ("X-Other", "a:b"))
    assert [key.line for key in made.trusted_keys] == [PUBLIC]
    assert made.server.deadlines.total == 7
    assert SECRET not in repr(made)
    assert world.found(address="") is None


def test_headers_of_the_users_file_go_to_the_server_beside_them_alone(world: World) -> None:
    world.user(f'address = "https://company/x"\nheaders = {{ Authorization = "{SECRET}" }}')
    assert world.made().server.headers
    assert not world.made(address="https://other").server.headers
    assert not world.made(RemoteOptions(address="https://company.evil")).server.headers
    assert world.made(address="https://other", headers="A: b").server.headers == (("A", "b"),)
    world.workspace('address = "https://evil"')
    world.user(f'headers = {{ Authorization = "{SECRET}" }}')
    with pytest.raises(WorkspaceError, match=r'"headers" in \[remote\] lacks the "address"'):
        world.found()


def test_the_signing_key_is_read_only_where_results_are_written(world: World) -> None:
    assert world.made(address="s3://bucket/p", signing_key="/nowhere").signing_key is None
    with pytest.raises(UsageError) as refused:
        world.found(address="s3://bucket/p", signing_key="/nowhere", role="read-write")
    assert str(refused.value) == (
        "MLCBUILD_REMOTE_SIGNING_KEY: /nowhere, the file of the signing key, cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    "given", ["/" + "a" * 42 + "=", "/" + "a" * 42, "MC4CAQAwBQYDK2VwBCIE", "~abc/+", "../x\n", "abc.pem"]
)
def test_what_may_be_a_key_itself_is_not_quoted_as_a_path(world: World, given: str) -> None:
    with pytest.raises(UsageError) as refused:
        world.found(address="s3://bucket/p", signing_key=given, role="read-write")
    assert (given in str(refused.value)) == (given == "abc.pem")


ERRORS: dict[str, Mapping[str, str]] = {
    "variable": {"address": f"https://u:{SECRET}@h:port/"},
    "slash in password": {"address": f"https://u:{SECRET[:4]}/{SECRET}@h/"},
    "s3": {"address": f"s3://AKIA:{SECRET[:4]}/{SECRET}@bucket/p"},
    "grpc": {"address": f"grpc://u:{SECRET}@h:1"},
    "query": {"address": f"https://h/?token={SECRET}"},
    "no scheme": {"address": f"u:{SECRET}@host"},
    "scheme": {"address": f"ftp://u:{SECRET}@host"},
    "endpoint": {"address": "s3://bucket", "endpoint": f"http://u:{SECRET}@host"},
    "torn endpoint": {"address": "s3://bucket", "endpoint": f"http://u:{SECRET[:4]}/{SECRET}@host"},
    "headers": {"address": "https://h", "headers": f"Bearer {SECRET}"},
    "header name": {"address": "https://h", "headers": f"A b: {SECRET}"},
    "header value": {"address": "https://h", "headers": f"A: {SECRET}ü"},
    "signing key": {"address": "s3://bucket", "role": "read-write", "signing_key": f"MC4C{SECRET}"},
    "torn signing key": {
        "address": "s3://bucket",
        "role": "read-write",
        "signing_key": f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
    },
    "trusted private key": {"address": "s3://bucket", "trusted_keys": f"MC4CAQAwBQYDK2VwBCIE{SECRET}"},
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_names_its_source_and_quotes_no_secret(world: World, name: str) -> None:
    with pytest.raises(UsageError) as by_variable:
        world.found(**ERRORS[name])
    assert str(by_variable.value).startswith("MLCBUILD_REMOTE")
    assert SECRET[:4] not in str(by_variable.value)


@pytest.mark.parametrize("name", [name for name in ERRORS if "header" not in name])
def test_an_error_in_the_users_file_has_a_place_and_quotes_no_secret(world: World, name: str) -> None:
    lines = [
        f"{setting} = ['''{value}''']" if setting == "trusted_keys" else f"{setting} = '''{value}'''"
        for setting, value in ERRORS[name].items()
    ]
    world.user("\n".join(lines))
    with pytest.raises(WorkspaceError) as in_file:
        world.found()
    assert str(in_file.value).startswith(f"{world.user_file}:{len(lines) + 1}:")
    assert SECRET[:4] not in str(in_file.value)


@pytest.mark.parametrize(
    "line", [f'headers = "Bearer {SECRET}"', f'signing_key = ["{SECRET}"]', f'headers = {{ A = ["{SECRET}"] }}']
)
def test_a_secret_of_the_wrong_type_is_not_quoted(world: World, line: str) -> None:
    world.user(line)
    with pytest.raises(WorkspaceError) as refused:
        world.found()
    assert str(refused.value).startswith(f"{world.user_file}:2:")
    assert SECRET not in str(refused.value)


def test_a_password_in_the_workspace_or_on_the_command_line_is_refused(world: World) -> None:
    world.workspace(f'address = "https://u:{SECRET}@h/x"')
    with pytest.raises(WorkspaceError, match=r'"address" in \[remote\] contains a user name or a password') as refused:
        world.found()
    assert SECRET not in str(refused.value)
    with pytest.raises(UsageError, match="--remote holds a name or a password") as flag:
        RemoteOptions(address=f"https://u:{SECRET}@h/x")
    assert SECRET not in str(flag.value)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"rolle": "read"}, "unknown variable MLCBUILD_REMOTE_ROLLE"),
        ({"role": "write"}, 'MLCBUILD_REMOTE_ROLE: unknown value "write"'),
        ({"timeout": "1 s"}, 'MLCBUILD_REMOTE_TIMEOUT must be a number, not "1 s"'),
        ({"timeout": "0"}, "MLCBUILD_REMOTE_TIMEOUT must be at least 1, not 0"),
        ({"connections": "1000"}, "MLCBUILD_REMOTE_CONNECTIONS: connections must be from 1 to 256, not 1000"),
        ({"namespace": "../x"}, "MLCBUILD_REMOTE_NAMESPACE: a namespace may contain letters"),
        ({"salt": "ü"}, "MLCBUILD_REMOTE_SALT: a salt may have at most 200"),
        ({"client_key": "x"}, "MLCBUILD_REMOTE_CLIENT_KEY: a client certificate and its key must be set together"),
        (
            {"trusted_keys": "no.pub"},
            'MLCBUILD_REMOTE_TRUSTED_KEYS: "no.pub" is neither a public key nor a readable file',
        ),
        (
            {"address": "ftp://h"},
            "MLCBUILD_REMOTE: the address of a remote cache must begin with s3://, http(s):// or grpc(s)",
        ),
        ({"address": "grpc://h"}, "MLCBUILD_REMOTE: the address of a gRPC cache needs a host and a port"),
        ({"address": "https://h:99999"}, "MLCBUILD_REMOTE: the address of a remote cache needs a host, and its port"),
    ],
)
def test_an_error_says_what_is_wrong(world: World, variables: Mapping[str, str], said: str) -> None:
    with pytest.raises(MlcbuildError) as refused:
        world.found(**{"address": "s3://bucket/p", **variables})
    assert str(refused.value).startswith(said)


def test_a_layout_that_knows_one_function_is_refused_where_the_workspace_has_another(world: World) -> None:
    world.workspace('address = "s3://bucket"\nlayout = "bazel-remote"')
    with pytest.raises(WorkspaceError) as refused:
        world.found()
    assert str(refused.value) == (
        "BUILD.toml:7:10: a bucket in the layout of bazel-remote names blobs by sha256, and this workspace by blake3\n"
        '  set digest = "sha256" in the [workspace] table, or use another layout'
    )
    world.workspace('address = "s3://bucket"\nlayout = "bazel-remote"', digest="sha256")
    assert world.made().s3.layout.value == "bazel-remote"


def test_errors_in_the_users_file_are_reported(world: World) -> None:
    world.user_file.write_text('[remotes]\naddress = "none"\n')
    with pytest.raises(WorkspaceError, match=r'settings\.toml:1:1: unknown table "remotes"'):
        world.found()
    world.user_file.write_text("[remote\n")
    with pytest.raises(WorkspaceError, match=r"settings.toml:1:\d+: not valid TOML"):
        world.found()
    world.user('adress = "none"')
    with pytest.raises(WorkspaceError, match=r'unknown setting "adress" in \[remote\]'):
        world.found()


def test_flags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="contradict"):
        RemoteOptions(address="s3://bucket", no_remote=True)
