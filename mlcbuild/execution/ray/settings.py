"""How a cluster is reached and used: one checked value, whichever sources its parts come from."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.execution.machine_resources import MachineResources


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """`address` is host:port of a running cluster. With "" one is started on this machine and ends with the build.

    Only nodes with all `labels` (sorted) are used. `may_scale_to` are machines that an autoscaler may add: an action
    that one of these could run waits for it. `jobs` limits the cpus of a cluster that is started here.
    """

    address: str = ""
    jobs: int = 1
    labels: tuple[tuple[str, str], ...] = ()
    may_scale_to: tuple[MachineResources, ...] = ()
    remote: RemoteConfiguration | None = None
    sandbox: bool = False  # on nodes, as far as each of them supports it
    connect_seconds: float = 120.0
    reconnect_seconds: float = 60.0  # after the connection was lost, before the cluster counts as failed

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {self.jobs}")
        if self.address:
            check_address(self.address)


def check_address(text: str) -> None:
    """Raises ValueError for what is not host:port."""
    host, colon, port = text.rpartition(":")
    if "//" in text or not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f'the address of a Ray cluster is host:port, for instance 10.0.0.1:6379, not "{text}"')
