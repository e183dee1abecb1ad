"""Ray: whether builds reach the configured cluster, who else can use it, and its nodes.

Everything uses the process through which builds talk to Ray, so this module does not import Ray.
"""

from __future__ import annotations

import socket
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.doctor.check import Check, Part
from mlcbuild.doctor.children import run_python
from mlcbuild.doctor.examination import of_error
from mlcbuild.doctor.finding import Figure, Finding, FindingCause, failed, ok, skipped, warning, wrong_setting
from mlcbuild.engine.distributions import Distributions, install_again
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import InfrastructureError
from mlcbuild.execution.machine_resources import MachineResources
from mlcbuild.execution.ray.build_context import BuildContext
from mlcbuild.execution.ray.environment_fingerprint import this_environment
from mlcbuild.execution.ray.probing import ClusterProbe, ProbedNode
from mlcbuild.execution.ray.settings import RaySettings
from mlcbuild.figures import duration, gibibytes
from mlcbuild.toolchains.table import Toolchains, every

_IMPORT_SECONDS = 60.0
_ROUTE_SECONDS = 5.0
_REACH_SECONDS = 20.0
_START_SECONDS = 90.0
_LOOK_SECONDS = 60.0  # a node may have to start a process of Ray and import mlcbuild
_TASK_SECONDS = 10.0
_TASKS = 10
_END_SECONDS = 25.0  # to end the process
_FAR_SECONDS = 0.3
_SHOWN_NODES = 20
_TOOLCHAIN = "toolchain "
_NOT_REACHED = "not tested: there is no cluster"
_INSTALL = 'python -m pip install "mlcbuild[ray]"'
_SAME = "install the same mlcbuild and the same dependencies on every node"
_SETTING_ERRORS = ("AuthenticationError", "InvalidAuthToken", "Version mismatch")  # in the words of Ray
_ANYBODY = "everybody who reaches it can run code on it"

_IMPORT_PROGRAM = """
import json, time
began = time.perf_counter()
import ray
print(json.dumps({"version": ray.__version__, "seconds": time.perf_counter() - began}))
"""
# Ray asks for the token when a client is made.
_STRANGER_PROGRAM = """
import json, os, secrets, sys
os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10)
    print(json.dumps({"refused": False}))
except AuthenticationError:
    print(json.dumps({"refused": True}))
"""


def ray_part(
    settings: RaySettings | None, *, store: Path, function: DigestFunction, environment: Mapping[str, str]
) -> Part:
    """`settings` are None if the settings choose neither Ray nor a cluster; then only Ray's installation is tested.
    `store` is the folder of the disk cache, which need not exist.
    """
    if settings is None:
        return Part(name="ray", checks=_without_cluster)
    patient = Ray(settings, store=store, function=function, environment=environment)
    subject = settings.address or "a cluster of this machine"
    return Part(name="ray", subject=subject, checks=patient.checks, close=patient.close)


def _without_cluster() -> Sequence[Check]:
    return (
        Check(name="Ray", examine=lambda: installed(is_needed=False), seconds=_IMPORT_SECONDS + 5),
        Check(
            name="cluster",
            examine=lambda: skipped(
                "none is configured",
                "to test one, give --executor=ray or --ray-address=HOST:PORT: see `mlcbuild help ray`",
            ),
        ),
    )


class Ray:
    """One cluster under examination."""

    def __init__(
        self, settings: RaySettings, *, store: Path, function: DigestFunction, environment: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._store = store
        self._function = function
        self._environment = environment
        self._versions: Mapping[str, str] = {}
        self._probe: ClusterProbe | None = None
        self._is_reached = False
        self._seen: tuple[ProbedNode, ...] = ()

    def checks(self) -> Iterator[Check]:
        """Yields the checks of nodes after the cluster has listed its nodes."""
        reach = self._reach_seconds
        yield Check(name="Ray", examine=lambda: installed(is_needed=True), seconds=_IMPORT_SECONDS + 5)
        yield Check(name="token", examine=self.token)
        yield Check(name="cluster", examine=self.cluster, seconds=reach + _ROUTE_SECONDS + _END_SECONDS)
        if self._settings.address:
            yield Check(name="strangers", examine=self.strangers, seconds=_IMPORT_SECONDS + 5)
        yield Check(name="nodes", examine=self.nodes, seconds=_LOOK_SECONDS + _TASK_SECONDS)
        for row in rows(self._seen):
            yield Check(name="node", examine=lambda row=row: row)  # type: ignore[misc]
        yield Check(name="tasks", examine=self.tasks, seconds=_TASKS * _TASK_SECONDS)

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()

    def token(self) -> Finding:
        if not self._settings.address:
            return ok("a build makes a token for its cluster")
        return token(self._environment)

    def cluster(self) -> Finding:
        if self._settings.address and (error := _route(self._settings.address)):
            return failed(
                f"{self._settings.address} {error}",
                "check the address, that the head runs (ray start --head), and that no firewall blocks it",
            )
        names = tuple(each.name for each in every() if not each.takes_path)
        environment = this_environment(names, Toolchains())
        self._versions = environment.components
        context = BuildContext(
            root=self._store,
            function=self._function,
            remote=None,
            toolchains=names,
            sandbox=self._settings.sandbox,
            idle_seconds=1.0,
        )
        probe = self._probe = ClusterProbe(self._settings, context=context, environment=environment)
        try:
            seconds = probe.connect(self._reach_seconds)
        except InfrastructureError as error:
            is_setting = any(word in error.message for word in _SETTING_ERRORS)
            return of_error(error, cause=FindingCause.SETTINGS if is_setting else None)
        self._is_reached = True
        doing = "reached" if self._settings.address else "started"
        return ok(f"{doing} in {duration(seconds)}, including the import of Ray", seconds=seconds)

    def strangers(self) -> Finding:
        """Connects with another token, which the cluster should reject."""
        if not self._is_reached:
            return skipped(_NOT_REACHED)
        child = run_python(_STRANGER_PROGRAM, self._settings.address, seconds=_IMPORT_SECONDS)
        if child.document.get("refused") is True:
            return ok("a connection with another token is rejected")
        if child.document.get("refused") is False:
            return warning(
                f"a connection with another token is accepted: {_ANYBODY}",
                "start every node with RAY_AUTH_MODE=token and the same token",
            )
        return skipped(f"unknown: a connection with another token {child.ended or 'gave no answer'}")

    def nodes(self) -> Finding:
        probe = self._probe
        if probe is None or not self._is_reached:
            return skipped(_NOT_REACHED)
        self._seen = probe.look(_LOOK_SECONDS)
        return sum_of(self._seen, self._settings, self._versions)

    def tasks(self) -> Finding:
        """Runs empty tasks one after the other in a running process: the time that Ray adds to an action.

        Raises InfrastructureError.
        """
        probe = self._probe
        node = next((seen for seen in self._seen if is_good(seen)), None)
        if probe is None or node is None:
            return skipped("not tested: no node runs actions" if self._is_reached else _NOT_REACHED)
        times = [probe.round_trip(node.node, _TASK_SECONDS) for _ in range(_TASKS)]
        median = statistics.median(times)
        measured = f"{duration(median)} each, at most {duration(max(times))}; the first one of a process "
        measured += duration(node.seconds)
        figures = {"median_seconds": median, "longest_seconds": max(times), "first_seconds": node.seconds}
        if median > _FAR_SECONDS:
            return warning(measured, "distant or busy: --executor=auto keeps small actions on this machine", **figures)
        return ok(measured, **figures)

    @property
    def _reach_seconds(self) -> float:
        return min(self._settings.connect_seconds, _REACH_SECONDS) if self._settings.address else _START_SECONDS


def installed(*, is_needed: bool) -> Finding:
    """Imports Ray in a separate process."""
    found = Distributions(JsonCache(None, kind="doctor")).find("ray")
    if found is None:
        if is_needed:
            return failed("not installed, but the settings choose it", f"run: {_INSTALL}")
        return skipped("not installed", f"for clusters: {_INSTALL}")
    child = run_python(_IMPORT_PROGRAM, seconds=_IMPORT_SECONDS)
    if child.ended:
        return failed(f"{found.version}: its import {child.ended}", install_again(found))
    seconds = child.document.get("seconds")
    took = float(seconds) if isinstance(seconds, int | float) else 0.0
    return ok(f"{found.version}, imported in {duration(took)}", version=found.version, import_seconds=took)


def token(environment: Mapping[str, str]) -> Finding:
    """The token that this machine sends to a cluster. It is found as Ray finds it, and never printed."""
    mode = environment.get("RAY_AUTH_MODE") or "token"
    if mode.lower() != "token":
        return warning(
            f'RAY_AUTH_MODE is "{mode}", so no token is sent: if a cluster accepts that, {_ANYBODY}',
            "start every node with RAY_AUTH_MODE=token, and unset the variable here",
        )
    if environment.get("RAY_AUTH_TOKEN", "").strip():
        return ok("in RAY_AUTH_TOKEN")
    named = environment.get("RAY_AUTH_TOKEN_PATH", "")
    path = Path(named) if named else Path(environment.get("HOME") or "~").expanduser() / ".ray/auth_token"
    advice = "copy the token of the cluster's head there, or name its file in RAY_AUTH_TOKEN_PATH"
    try:
        if not path.read_text(encoding="utf-8", errors="replace").strip():
            return wrong_setting(f"{path} is empty", advice)
        permissions = path.stat().st_mode & 0o777
    except OSError as error:
        return wrong_setting(f"{path} cannot be read: {error.strerror or error}", advice)
    if permissions & 0o077:
        return warning(f"other users may access {path} (mode {permissions:04o})", f"run: chmod 600 {path}")
    return ok(f"in {path}, private")


def is_good(seen: ProbedNode) -> bool:
    """Whether builds give the node actions that need no toolchain which it lacks."""
    return not (seen.unused or seen.error or _basic(seen))


def _basic(seen: ProbedNode) -> list[str]:
    """Differences that exclude the node from every build."""
    return [line for line in seen.differences if not line.startswith(_TOOLCHAIN)]


def sum_of(seen: Sequence[ProbedNode], settings: RaySettings, versions: Mapping[str, str]) -> Finding:
    good = [each for each in seen if is_good(each)]
    cpus = sum(each.node.resources.cpus for each in good)
    gpus = sum(each.node.resources.gpus for each in good)
    figures: dict[str, Figure] = {"count": len(seen), "used": len(good), "cpus": cpus, "gpus": gpus}
    figures |= {name: versions.get(name, "") for name in ("python", "ray", "mlcbuild")}
    measured = f"{len(good)} of {len(seen)} run actions: {_counted(cpus, 'cpu')}, {_counted(gpus, 'GPU')}"
    if good:
        return ok(measured, **figures)
    if settings.may_scale_to:
        kinds = _counted(len(settings.may_scale_to), "kind") + " of nodes"
        return ok(f"none of {len(seen)} runs actions now; the autoscaler may add {kinds}", **figures)
    if seen and all(each.unused for each in seen):
        advice = "give a node cpus (ray start --num-cpus)"
        if settings.labels:
            advice += ", and the labels in [execution] (ray start --labels)"
        return wrong_setting("no node runs actions", advice)
    return failed("no node runs actions: all that could differ from this machine, or do not answer", _SAME)


def rows(seen: Iterable[ProbedNode]) -> list[Finding]:
    """One finding for each group of equal nodes."""
    alike: dict[tuple[object, ...], list[ProbedNode]] = {}
    for each in seen:
        key = (_shown_resources(each), each.unused, each.error, each.differences, each.shares_store)
        alike.setdefault(key, []).append(each)
    measured = [_row(group) for group in alike.values()]
    if len(measured) > _SHOWN_NODES:
        rest = sum(len(group) for group in list(alike.values())[_SHOWN_NODES:])
        measured[_SHOWN_NODES:] = [skipped(f"and {rest} more, in other groups")]
    return measured


def _row(group: Sequence[ProbedNode]) -> Finding:
    first = group[0]
    names = first.node.name + (f" and {len(group) - 1} more" if len(group) > 1 else "")
    machine = _shown_resources(first)
    figures: dict[str, Figure] = {
        "names": " ".join(each.node.name for each in group),
        "cpus": machine.cpus,
        "gpus": machine.gpus,
        "memory_bytes": machine.memory_bytes,
        "labels": " ".join(f"{name}={value}" for name, value in machine.labels),
        "shares_store": first.shares_store,
    }
    measured = f"{names}: {_offer(machine)}"
    if first.unused:
        return ok(f"{measured}; runs no actions: {first.unused}", **figures)
    if first.error:
        return warning(f"{measured}; not used: {first.error}", "check Ray's logs on that machine", **figures)
    if _basic(first):
        return warning(f"{measured}; not used: it differs", *first.differences, _SAME, **figures)
    measured += "; shares the store of this machine" if first.shares_store else "; has its own store"
    if first.differences:
        advice = "a build whose actions need one of these toolchains does not use it"
        return warning(f"{measured}; other toolchains", *first.differences, advice, **figures)
    return ok(f"{measured}; same as this machine", **figures)


def _offer(machine: MachineResources) -> str:
    parts = [_counted(machine.cpus, "cpu")]
    if machine.gpus:
        parts.append(_counted(machine.gpus, "GPU"))
    if machine.memory_bytes:
        parts.append(gibibytes(machine.memory_bytes))
    parts += [f"{name}={value}" for name, value in machine.labels]
    return ", ".join(parts)


def _shown_resources(seen: ProbedNode) -> MachineResources:
    """The node's resources without Ray's own labels, which differ on every node, and with memory in whole GiB, because
    Ray measures it.
    """
    machine = seen.node.resources
    labels = tuple((name, value) for name, value in machine.labels if not name.startswith("ray.io/"))
    return replace(machine, labels=labels, memory_bytes=machine.memory_bytes >> 30 << 30)


def _counted(count: float, noun: str) -> str:
    return f"{count:g} {noun}{'s' * (count != 1)}"


def _route(address: str) -> str:
    """Why nothing answers at the address; "" if something does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ROUTE_SECONDS).close()
    except socket.gaierror:
        return "is unknown: the name cannot be resolved"
    except TimeoutError:
        return f"does not answer within {_ROUTE_SECONDS:g} s"
    except OSError as error:
        return f"does not accept connections: {error.strerror or error}"
    return ""
