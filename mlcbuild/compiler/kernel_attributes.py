"""Attributes of kernels that our own passes read. None of them is left where a kernel's content is looked at."""

from __future__ import annotations

RESTORES_WEIGHTS = "mlcbuild.restores_weights"  # on a kernel that makes a matrix of what is stored for it
