"""One S3 server for all tests of remotes."""

from __future__ import annotations

from tests.remote.seaweed import seaweed

__all__ = ["seaweed"]
