"""One S3 server for all tests of remotes, and what tests over S3 share."""

from __future__ import annotations

from tests.remote.filled import elsewhere, filled
from tests.remote.s3_world import credentials, proxy, world
from tests.remote.seaweed import seaweed

__all__ = ["credentials", "elsewhere", "filled", "proxy", "seaweed", "world"]
