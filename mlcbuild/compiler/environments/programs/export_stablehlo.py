"""A function of JAX, which a Python file makes: `source` → `exported`, `module` and `description`.

`exported` is jax.export's form, and `module` the StableHLO in it, which other compilers read. Neither has weights:
these are the function's first argument. Nor do they hold places in the source: an edit that changes no operation gives
the same bytes. Needs jax and flatbuffers.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_NAME = "model"


def run(
    *,
    source: Path,
    exported: Path,
    module: Path,
    description: Path,
    function: str,
    arguments: Mapping[str, Any],
    platforms: Sequence[str],
) -> None:
    """`function` returns what computes, its weights (name → shape and type) and its other inputs, as a tuple."""
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    import jax
    from jax import export

    compute, weights, inputs = _made(source, function, arguments)
    try:
        # The module takes what the function takes, also what that does not use.
        whole = export.export(jax.jit(compute, keep_unused=True), platforms=list(platforms))(weights, *inputs)
    except Exception as error:
        raise SystemExit(f"jax {jax.__version__} cannot export the function: {_first_line(error)}") from None
    finally:
        sys.modules.pop(_NAME, None)
    whole = dataclasses.replace(whole, mlir_module_serialized=_without_places(whole.mlir_module_serialized))
    exported.write_bytes(whole.serialize())
    module.write_bytes(whole.mlir_module_serialized)
    names = sorted(weights)
    described = {
        "version": 1,
        "platforms": list(whole.platforms),
        "weights": [_tensor(name, value) for name, value in zip(names, whole.in_avals, strict=False)],
        "inputs": [_tensor(None, value) for value in whole.in_avals[len(names) :]],
        "outputs": [_tensor(None, value) for value in whole.out_avals],
    }
    description.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def _without_places(serialized: bytes) -> bytes:
    """StableHLO in its portable form, for readers of four weeks ago too, without locations."""
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import passmanager
    from jaxlib.mlir.dialects import stablehlo

    with mlir.make_ir_context():
        parsed = stablehlo.deserialize_portable_artifact(mlir.ir.Context.current, serialized)
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(parsed.operation)
        version = stablehlo.get_version_from_compatibility_requirement(
            stablehlo.StablehloCompatibilityRequirement.WEEK_4
        )
        written: bytes = stablehlo.serialize_portable_artifact(parsed, version)
        return written


def _made(source: Path, function: str, arguments: Mapping[str, Any]) -> tuple[Any, dict[str, Any], tuple[Any, ...]]:
    specification = importlib.util.spec_from_file_location(_NAME, source)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[_NAME] = module
    specification.loader.exec_module(module)
    make = getattr(module, function, None)
    if not callable(make):
        raise SystemExit(f"{source.name} has no function {function}")
    made = make(**arguments)
    if not (
        isinstance(made, tuple)
        and len(made) == 3
        and callable(made[0])
        and isinstance(made[1], dict)
        and isinstance(made[2], tuple)
    ):
        raise SystemExit(
            f"{function} of {source.name} returns no function, weights and inputs: "
            "write `return compute, weights, (x,)`"
        )
    compute, weights, inputs = made
    return compute, weights, inputs


def _tensor(name: str | None, value: Any) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else str(size) for size in value.shape]
    told = {"type": str(value.dtype), "shape": shape}
    return told if name is None else {"name": name, **told}


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
