"""The quantization schemes, as rules name them: by the files in `mlcbuild/compiler/quantization/schemes/`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from mlcbuild.plugins import plugins_in

if TYPE_CHECKING:
    from mlcbuild.compiler.quantization.scheme import QuantizationScheme

_PACKAGE = "compiler/quantization/schemes"
NAMES: tuple[str, ...] = plugins_in(_PACKAGE)


def plugin(name: str) -> str:
    """A scheme as the plug-in `scheme` of actions."""
    return f"{_module(name)}:SCHEME"


def with_encoder(name: str) -> dict[str, str]:
    """A scheme and its encoder, as the plug-ins `scheme` and `encoder` of actions."""
    return {"scheme": plugin(name), "encoder": scheme(name).encoder}


def scheme(name: str) -> QuantizationScheme:
    """A scheme itself. Its module imports neither NumPy nor tvm."""
    found: QuantizationScheme = importlib.import_module(_module(name)).SCHEME
    return found


def _module(name: str) -> str:
    return f"mlcbuild.{_PACKAGE.replace('/', '.')}.{name}"
