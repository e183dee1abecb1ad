"""What the forked child of a stage does: read its request, confine itself, call the stage, and send the result.

The fork server loads this file by path. It imports only the standard library.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import tempfile
from typing import Any

FAILED = 70  # EX_SOFTWARE: our own code in the child failed


def run(channel: socket.socket, *, source_loader: Any, sandbox: Any, read_audit: Any) -> int:
    """Run the stage whose request comes on `channel`. Returns the exit status. The modules come from the server."""
    pieces = []
    while piece := channel.recv(1 << 16):
        pieces.append(piece)
    request = json.loads(b"".join(pieces))
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    policy = request.get("sandbox")
    if policy:
        try:
            sandbox.confine(policy)
        except OSError as error:
            _send(channel, {"unconfined": str(error)})
            return FAILED
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    source_loader.install(
        package_root=request["package_root"],
        directories=request["module_paths"],
        names=request["module_names"],
        cache=request["bytecode"],
    )
    audit = read_audit.ReadAudit(policy) if policy else None
    if audit:
        audit.watch()
    stage_call = importlib.import_module("mlcbuild.execution.stage_call")
    already_found = len(source_loader.FOUND)
    result = stage_call.call(request["call"])
    sys.stdout.flush()
    sys.stderr.flush()
    seen = {"undeclared": audit.undeclared, "network": audit.tried_network} if audit else {}
    _send(
        channel, {**result, **seen, "modules": source_loader.FOUND[already_found:], "compiled": source_loader.COMPILED}
    )
    return 0


def _send(channel: socket.socket, result: dict[str, Any]) -> None:
    try:
        channel.sendall(json.dumps(result).encode() + b"\n")
    except OSError:
        pass  # The client has closed it: nobody waits for the result.
