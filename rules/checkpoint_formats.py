"""The formats of quantized checkpoints, as rules name them: by the folders in
`mlcbuild/compiler/weights/checkpoint_formats/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.plugins import load_plugin, plugins_in

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.checkpoint_format import AnyFormat

_FOLDER = "compiler/weights/checkpoint_formats"
_PACKAGE = "mlcbuild.compiler.weights.checkpoint_formats"


def format_plugins() -> tuple[str, ...]:
    """Every format's `FORMAT`, as the plug-ins `formats` of actions."""
    return tuple(f"{_PACKAGE}.{name}.format:FORMAT" for name in _names())


def reader_plugins() -> tuple[str, ...]:
    """Every format's `READER`, as the plug-ins `readers` of actions."""
    return tuple(f"{_PACKAGE}.{name}.reader:READER" for name in _names())


def formats() -> tuple[AnyFormat, ...]:
    """The formats themselves. Their modules import neither NumPy nor tvm."""
    return tuple(map(load_plugin, format_plugins()))


def _names() -> tuple[str, ...]:
    return plugins_in(_FOLDER, module="format")
