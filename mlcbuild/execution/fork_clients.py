"""The fork servers of one executor: one for each set of preloaded modules, started when an action first needs it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from mlcbuild.execution import environment
from mlcbuild.execution.fork_client import ForkClient
from mlcbuild.execution.preload import HIDDEN
from mlcbuild.execution.server_pool import PooledForkClient


class ForkClients:
    """For any thread. With `pool`, a directory, servers are taken from the pool there and stay in it; without one they
    end with `close`. `variables` replace some of those that servers start with.
    """

    def __init__(self, *, variables: Mapping[str, str], pool: Path | None, idle_seconds: float) -> None:
        self._variables = environment.of_server(variables)
        self._pool = pool
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, ...], ForkClient] = {}

    def get(self, preload: tuple[str, ...], *, logs: Path) -> ForkClient:
        """The client for a server that holds these modules. A server outside the pool logs to a file in `logs`."""
        with self._lock:
            if preload not in self._clients:
                self._clients[preload] = self._new(preload, logs / f"server-{len(self._clients)}.log")
            return self._clients[preload]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _new(self, preload: tuple[str, ...], log: Path) -> ForkClient:
        if self._pool is None:
            return ForkClient(preload=preload, hide=HIDDEN, log=log, variables=self._variables)
        return PooledForkClient(
            preload=preload,
            hide=HIDDEN,
            variables=self._variables,
            directory=self._pool,
            idle_seconds=self._idle_seconds,
        )
