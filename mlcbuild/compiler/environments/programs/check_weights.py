"""`weights` (safetensors) and `description` (model.json) → `checked`: the weights that the function takes, as
NumPy's .npz. Others, and wrong ones, are refused. Needs numpy.
"""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
_SHOWN = 10


def run(*, weights: tuple[Path, ...], description: Path, checked: Path) -> None:
    import numpy as np

    wanted = {each["name"]: each for each in json.loads(description.read_text(encoding="utf-8"))["weights"]}
    found: dict[str, Any] = {}
    problems: list[str] = []
    for file in weights:
        read = _read(file)
        problems += [f"{name} is in {file.name} and in a file before it" for name in sorted(read.keys() & found.keys())]
        found |= read
    problems += [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    problems += [f"the function takes no {name}" for name in sorted(found.keys() - wanted.keys())]
    for name in sorted(wanted.keys() & found.keys()):
        value, its = found[name], wanted[name]
        if (str(value.dtype), list(value.shape)) != (its["type"], its["shape"]):
            problems.append(
                f"{name} is {value.dtype} {list(value.shape)}, and the function takes {its['type']} {its['shape']}"
            )
        elif value.dtype.kind == "f" and not np.isfinite(value).all():
            problems.append(f"{name} has values that are not finite")
    if problems:
        more = [f"… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise SystemExit("\n  ".join(["the weights do not fit the function:", *problems[:_SHOWN], *more]))
    # numpy.savez takes no array that is called as an argument of its own is.
    with zipfile.ZipFile(checked, "w") as archive:
        for name, value in sorted(found.items()):
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as out:
                np.lib.format.write_array(out, value, allow_pickle=False)


def _read(file: Path) -> dict[str, Any]:
    """A safetensors file: the length of its header, the header, and the numbers."""
    import numpy as np

    content = memoryview(file.read_bytes())
    try:
        (length,) = struct.unpack_from("<Q", content)
        header = json.loads(bytes(content[8 : 8 + length]))
        header.pop("__metadata__", None)
        data = content[8 + length :]
        unknown = sorted({each["dtype"] for each in header.values()} - _TYPES.keys())
        if unknown:
            raise SystemExit(f"{file.name} has weights of the type {', '.join(unknown)}, which NumPy has not")
        return {
            name: np.frombuffer(data[slice(*each["data_offsets"])], _TYPES[each["dtype"]]).reshape(each["shape"])
            for name, each in header.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise SystemExit(f"{file.name} is no safetensors file: {error}") from None
