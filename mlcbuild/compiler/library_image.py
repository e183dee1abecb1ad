"""The image inside a library: the modules that TVM's runtime makes of it when it loads it.

The form is that of tvm-ffi's `__tvm_ffi__library_bin`: the size of the rest; for each module which others it imports;
then each module's kind and bytes. The kind `_lib` is the library's own native code and has no bytes. The first is the
one that loading answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from mlcbuild.compiler.byte_stream import ByteReader, ByteWriter

SYMBOL = "__tvm_ffi__library_bin"
NATIVE_CODE = "_lib"
EXECUTABLE = "relax.VMExecutable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModule:
    """A module of an image: its kind, its bytes, and the positions of those it imports."""

    kind: str
    data: bytes = b""
    imports: tuple[int, ...] = ()


def write(modules: Sequence[ImageModule]) -> bytes:
    """The image of modules, the root first."""
    starts, imported = [0], list[int]()
    for module in modules:
        imported += module.imports
        starts.append(len(imported))
    body = ByteWriter()
    body.numbers(starts)
    body.numbers(imported)
    for module in modules:
        body.string(module.kind)
        if module.kind != NATIVE_CODE:
            body.string(module.data)
    image = ByteWriter()
    image.string(body.bytes())
    return image.bytes()


def read(image: bytes) -> tuple[ImageModule, ...]:
    """The modules of an image. Raises ValueError for bytes of another form."""
    outer = ByteReader(image)
    reader = ByteReader(outer.string())
    outer.end()
    starts, imported = reader.numbers(), reader.numbers()
    modules = []
    for start, end in itertools.pairwise(starts):
        kind = reader.string().decode()
        data = b"" if kind == NATIVE_CODE else reader.string()
        modules.append(ImageModule(kind=kind, data=data, imports=imported[start:end]))
    reader.end()
    return tuple(modules)
