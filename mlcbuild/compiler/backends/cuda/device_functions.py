"""Device functions: what TVM's runtime has to know of them to launch them, and the module form it loads them in.

The form is that of TVM's CUDA module (`ffi.Module.load_from_bytes.cuda`): the code's format, the functions by name, the
code. Everything is little-endian; a string, list or map begins with its length as 64 bits. It is written here because
TVM writes it only where a GPU's driver is, and can be made to load cubins nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlcbuild.compiler.byte_stream import ByteReader, ByteWriter
from mlcbuild.errors import StageError

LAUNCH_VERSION = 1
MODULE_KIND = "cuda"  # TVM's name of the modules
TEXT = "cuda"  # the format of CUDA C++ text
CUBIN = "cubin"  # also the format of a fat binary: the driver tells them apart
_TYPE_CODES = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat", 6: "bool"}
_CODES = {name: code for code, name in _TYPE_CODES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFunction:
    """A function of a GPU, as TVM's `FunctionInfo` has it.

    `argument_types` are (kind, bits, lanes), the kind of a pointer being `handle`; `launch_parameters` are the tags of
    what follows the arguments in a call, `blockIdx.x` and the like; `argument_tags` are 0, or 1 for a tensor map.
    """

    name: str
    argument_types: tuple[tuple[str, int, int], ...]
    launch_parameters: tuple[str, ...]
    argument_tags: tuple[int, ...]


def to_json(functions: Sequence[DeviceFunction], *, numbers: Mapping[str, Sequence[int]] | None = None) -> str:
    """The canonical JSON of the functions of one kernel. `numbers` are those that calls of a function end with, where
    they are known only once it is compiled."""
    document: dict[str, object] = {
        "version": LAUNCH_VERSION,
        "functions": [
            {
                "name": function.name,
                "argument_types": [list(given) for given in function.argument_types],
                "launch_parameters": list(function.launch_parameters),
                "argument_tags": list(function.argument_tags),
            }
            for function in functions
        ],
    }
    if numbers is not None:
        document["numbers"] = {name: list(own) for name, own in numbers.items()}
    return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


def numbers_from_json(text: str, *, where: str) -> dict[str, tuple[int, ...]]:
    """The `numbers` that `to_json` wrote, by function. Raises StageError, calling the text `where`, for anything
    else."""
    try:
        return {str(name): tuple(map(int, own)) for name, own in json.loads(text)["numbers"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StageError(f"{where} says nothing of how its functions are started: {error}") from error


def from_json(text: str, *, where: str) -> tuple[DeviceFunction, ...]:
    """The functions that `to_json` wrote. Raises StageError, calling the text `where`, for anything else."""
    try:
        document = json.loads(text)
        if document["version"] != LAUNCH_VERSION:
            raise ValueError(f"version {document['version']!r}")
        return tuple(
            DeviceFunction(
                name=str(function["name"]),
                argument_types=tuple(
                    (_known(str(kind)), int(bits), int(lanes)) for kind, bits, lanes in function["argument_types"]
                ),
                launch_parameters=tuple(map(str, function["launch_parameters"])),
                argument_tags=tuple(map(int, function["argument_tags"])),
            )
            for function in document["functions"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StageError(f"{where} is not a list of device functions: {error}") from error


def to_module(functions: Sequence[DeviceFunction], code: bytes) -> bytes:
    """TVM's CUDA module of a cubin or fat binary."""
    writer = ByteWriter()
    writer.string(CUBIN)
    writer.number(len(functions))
    for function in functions:
        writer.string(function.name)
        writer.string(function.name)
        writer.number(len(function.argument_types))
        for kind, bits, lanes in function.argument_types:
            writer.data_type(_CODES[kind], bits, lanes)
        writer.strings(function.launch_parameters)
        writer.number(len(function.argument_tags))
        for tag in function.argument_tags:
            writer.integer(tag)
    writer.string(code)
    return writer.bytes()


def from_module(module: bytes) -> tuple[str, tuple[DeviceFunction, ...], bytes]:
    """Format, functions and code of TVM's CUDA module.

    Raises StageError for an argument of a type that is none of a GPU's, ValueError for bytes of another form.
    """
    reader = ByteReader(module)
    form = reader.string().decode()
    functions = []
    for _ in range(reader.number()):
        reader.string()
        functions.append(
            DeviceFunction(
                name=reader.string().decode(),
                argument_types=tuple(_type(*reader.data_type()) for _ in range(reader.number())),
                launch_parameters=tuple(reader.string().decode() for _ in range(reader.number())),
                argument_tags=tuple(reader.integer() for _ in range(reader.number())),
            )
        )
    code = reader.string()
    reader.end()
    return form, tuple(functions), code


def _type(code: int, bits: int, lanes: int) -> tuple[str, int, int]:
    if code not in _TYPE_CODES:
        raise StageError(f"an argument of a device function has the type code {code}, which no kernel here has")
    return _TYPE_CODES[code], bits, lanes


def _known(kind: str) -> str:
    if kind not in _CODES:
        raise ValueError(f"unknown type {kind!r}")
    return kind
