"""What tests of `cache push` and `pull` say to a command, and show of its output."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.cli.remote_places import Place, shown
from tests.remote import http_server

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]
WRITES = {"MLCBUILD_REMOTE_ROLE": "read-write"}
IMPATIENT = {"MLCBUILD_REMOTE_IDLE_TIMEOUT": "1", "MLCBUILD_REMOTE_TIMEOUT": "1"}
MORE = """
[[command]]
name = "folder"
tool = ":sh"
inputs = [":one"]
outputs = ["folder/"]
arguments = ["-c", "mkdir -p $1/sub; cat $0 > $1/a; head -c 200000 /dev/zero > $1/sub/large", "{inputs}", "{outputs}"]

[[command]]
name = "mine"
tool = ":sh"
inputs = [":one"]
outputs = ["mine.txt"]
arguments = ["-c", "hostname > $1", "{inputs}", "{outputs}"]
cache = "local"
tags = ["manual"]
"""


def same(server: http_server.Cache, place: Place, told: str) -> str:
    told = re.sub(r"[\d.]+ k?B\b", "N", shown(server, told)).replace(str(place.folder), "<folder>")
    return re.sub(r'"bytes": \d+', '"bytes": N', told)
