"""IndexWeights: the records of all shards become `tensor-cache.json`.

Reads `records` (one JSON file a shard) and `parameters` (parameters.json). Writes `index`, in the form and with the
metadata that MLC-LLM writes, after checking that every tensor of the scheme is there once.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.quantization.scheme import QuantizationScheme, StoredTensor
from mlcbuild.compiler.weights.tensor import dtype_of
from mlcbuild.compiler.weights.tensor_cache import check_encoding, shard_name, write_index
from mlcbuild.errors import StageError


def run(
    *, records: tuple[Path, ...], parameters: Path, index: Path, scheme: QuantizationScheme, encode: str = "raw"
) -> None:
    """`scheme` is a plug-in. Raises StageError where the shards do not hold exactly the tensors of the scheme."""
    check_encoding(encode)
    by_name = {record["dataPath"]: record for record in (json.loads(path.read_bytes()) for path in records)}
    # Shards are numbered; their order is the number's and not that of the text.
    ordered = [by_name.get(shard_name(number)) for number in range(len(records))]
    listed = read_parameters(parameters).parameters
    expected = {stored.name: stored for parameter in listed for stored in scheme.stored(parameter)}
    found: dict[str, StoredTensor] = {}
    for number, record in enumerate(ordered):
        if record is None:
            raise StageError(f"the record of {shard_name(number)} is missing")
        for entry in record["records"]:
            stored = StoredTensor(name=entry["name"], shape=tuple(entry["shape"]), dtype=entry["dtype"])
            if stored.name in found:
                raise StageError(f"the tensor {stored.name} is in two shards")
            if entry["format"] != encode:
                raise StageError(f'the tensor {stored.name} is encoded as "{entry["format"]}", not "{encode}"')
            found[stored.name] = stored
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise StageError(f"the shards do not hold the weights of {scheme.name}: {', '.join(wrong[:10])}")
    elements = sum(parameter.elements for parameter in listed)
    size = sum(math.prod(stored.shape) * dtype_of(stored.dtype).itemsize for stored in found.values())
    metadata = {"ParamSize": len(found), "ParamBytes": size, "BitsPerParam": size * 8 / elements}
    write_index(index, metadata=metadata, records=ordered)
