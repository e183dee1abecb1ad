"""What Lower has to know of a scheduled kernel besides the arguments that the graph calls it with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tvm import tirx

from mlcbuild.compiler import ir
from mlcbuild.errors import StageError

VERSION = 1
_INDEX_BITS = 64


@dataclass(frozen=True, kw_only=True)
class Signature:
    """`source` is where the kernel comes from (`kernels.scheduling.Scheduling.source`).

    `workspace` lists the global buffers that the caller has to hand over behind all other arguments, as people read
    them; `parameters`, empty where there are none, is TVM's JSON of a function without a body that has all the kernel's
    parameters: the sizes of the last ones depend on those of the others."""

    name: str
    source: str
    workspace: tuple[str, ...] = ()
    parameters: str = ""

    def __post_init__(self) -> None:
        if bool(self.workspace) != bool(self.parameters):
            raise ValueError(f"{self.name}: a workspace of {self.workspace!r} with parameters {self.parameters!r}")

    @staticmethod
    def of(func: tirx.PrimFunc, *, name: str, source: str, workspace: int) -> Signature:
        """The signature of a kernel whose last `workspace` parameters are its workspace."""
        if workspace == 0:
            return Signature(name=name, source=source)
        stub = tirx.PrimFunc(func.params, tirx.Evaluate(0), func.ret_type)
        shown = [f"{buffer.dtype}{list(buffer.shape)}" for buffer in list(func.params)[-workspace:]]
        return Signature(name=name, source=source, workspace=tuple(shown), parameters=ir.to_json(stub))

    def to_json(self) -> str:
        document: dict[str, object] = {
            "version": VERSION,
            "name": self.name,
            "source": self.source,
            "workspace": list(self.workspace),
            "index_bits": _INDEX_BITS,
        }
        if self.parameters:
            document["parameters"] = self.parameters
        return json.dumps(document, sort_keys=True) + "\n"

    @staticmethod
    def read(path: Path) -> Signature:
        """The signature in a file. Raises StageError for a file that holds none."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return Signature(
                name=str(document["name"]),
                source=str(document["source"]),
                workspace=tuple(document["workspace"]),
                parameters=document.get("parameters", ""),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StageError(f"{path.name} is not the signature of a kernel") from error

    def stub(self) -> tirx.PrimFunc:
        """A function without a body that has all parameters."""
        function = ir.from_json(self.parameters, where=f"the signature of {self.name}")
        if not isinstance(function, tirx.PrimFunc):
            raise StageError(f"the signature of {self.name} holds no function")
        return function
