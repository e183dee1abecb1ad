"""Weights as the stages import and quantize them, in a directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.stages import import_weights, index_weights, quantize
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.tensor_cache import TensorCache
from tests.compiler import schemes
from tests.compiler.resolving import readers, write_resolved
from tests.compiler.tiny_models import TINY, Array


def imported(directory: Path, source: Path, config: Mapping[str, object] = TINY) -> dict[str, Any]:
    write_resolved(directory, config)
    import_weights.run(
        readers=readers(),
        source=source,
        parameters=directory / "parameters.json",
        manifest=directory / "manifest.json",
        shards=directory / "shards",
    )
    manifest: dict[str, Any] = json.loads((directory / "manifest.json").read_text())
    return manifest


def quantized(
    directory: Path,
    quantization: str | QuantizationScheme,
    *,
    encode: str = "raw",
    allow_requantize: bool = True,
) -> dict[str, Any]:
    manifest = json.loads((directory / "manifest.json").read_text())
    scheme = schemes.scheme(quantization) if isinstance(quantization, str) else quantization
    records = []
    for number, shard in enumerate(manifest["shards"]):
        records.append(directory / f"records_{number:05d}.json")
        quantize.run(
            shard=directory / "shards" / shard["file"],
            parameters=directory / "parameters.json",
            shard_out=directory / f"params_shard_{number}.bin",
            records=records[-1],
            scheme=scheme,
            encoder=schemes.encoder_class(scheme),
            index=number,
            encode=encode,
            allow_requantize=allow_requantize,
        )
    index_weights.run(
        records=tuple(reversed(records)),
        parameters=directory / "parameters.json",
        index=directory / "tensor-cache.json",
        scheme=scheme,
        encode=encode,
    )
    document: dict[str, Any] = json.loads((directory / "tensor-cache.json").read_text())
    return document


def stored(directory: Path, document: Mapping[str, Any]) -> dict[str, Array]:
    entries = [entry for record in document["records"] for entry in record["records"]]
    wanted = [ExpectedTensor.of(entry) for entry in entries]
    return dict(zip([item.name for item in wanted], TensorCache(directory).read(wanted), strict=True))
