"""The model families, as rules name them: by the folders in `mlcbuild/compiler/families/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlcbuild.plugins import load_plugin, plugins_in

if TYPE_CHECKING:
    from mlcbuild.compiler.models.family import Family

_FOLDER = "compiler/families"
_PACKAGE = "mlcbuild.compiler.families"


def family_plugins() -> tuple[str, ...]:
    """Every family's `FAMILY`, as the plug-ins `families` of actions."""
    return tuple(f"{_PACKAGE}.{name}.family:FAMILY" for name in _names())


def model_plugins() -> tuple[str, ...]:
    """Every family's `MODEL`, as the plug-ins `models` of actions."""
    return tuple(f"{_PACKAGE}.{name}.model:MODEL" for name in _names())


def families() -> tuple[Family[Any], ...]:
    """The families themselves. Their modules import neither NumPy nor tvm."""
    return tuple(map(load_plugin, family_plugins()))


def _names() -> tuple[str, ...]:
    return plugins_in(_FOLDER, module="family")
