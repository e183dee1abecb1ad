"""Servers for tests of remotes: one of S3 for all, and one in memory of each test's own."""

from __future__ import annotations

from tests.remote.filled import elsewhere, filled
from tests.remote.remote_stores import server
from tests.remote.s3_world import credentials, proxy, world
from tests.remote.seaweed import seaweed

__all__ = ["credentials", "elsewhere", "filled", "proxy", "seaweed", "server", "world"]
