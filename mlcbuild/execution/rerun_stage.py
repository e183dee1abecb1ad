"""Call a stage again as a worker did, but in this process: `python -s -P rerun_stage.py call.json`.

It runs in the action's directory, for people who debug a failure. `failed_sandbox` writes the file, which is a request
as the fork server's child gets it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path


def main() -> int:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.umask(0o022)
    spec = importlib.util.spec_from_file_location("source_loader", Path(__file__).with_name("source_loader.py"))
    assert spec is not None
    assert spec.loader is not None
    source_loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source_loader)
    sys.meta_path.insert(0, source_loader.HidingFinder(request["hide"]))
    source_loader.install(
        package_root=request["package_root"],
        directories=request["module_paths"],
        names=request["module_names"],
        cache=request["bytecode"],
    )
    result = importlib.import_module("mlcbuild.execution.stage_call").call(request["call"])
    print(f"{result['kind']}: {result['message']}" if result["message"] else result["kind"])
    return 0 if result["kind"] == "succeeded" else 1


if __name__ == "__main__":
    sys.exit(main())
