"""Where a module lies in the tree of modules: that is what its parameters are called."""

from __future__ import annotations

from tvm.relax.frontend import nn


def place(root: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module below `root`, in modules by the parts of its dotted name, which are made where there are none.

    Attributes of `root` that are no modules for parameters begin with `_`, which no name does.
    """
    *outer, last = name.split(".")
    for part in outer:
        if not hasattr(root, part):
            setattr(root, part, nn.Module())
        root = getattr(root, part)
    setattr(root, last, module)
