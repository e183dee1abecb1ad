"""Packages that tests compare with, those of locks/parity.txt. Who has not installed them runs the other tests. In CI
that would hide that nothing is compared."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

import pytest


def parity_package(name: str) -> Any:
    """The module of a name. Without it the test is skipped, or fails, where the variable `CI` is `true`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # What a package says of itself while it is imported is no test's error.
            return importlib.import_module(name)
    except ImportError as error:
        told = f"{error}; pip install -r locks/parity.txt"
        if os.environ.get("CI") == "true":
            pytest.fail(told)
        pytest.skip(told, allow_module_level=True)
