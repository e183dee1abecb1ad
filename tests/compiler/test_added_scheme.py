"""The scheme that docs/quantization.md adds keeps to the interface, and its logits are those of transformers."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.compiler import schemes
from tests.compiler.parity import check_logits
from tests.compiler.test_llama_parity import MODELS

PAGE = Path(__file__).parents[2] / "docs/quantization.md"
NAME = "q8f32_row"


@pytest.fixture(scope="module", autouse=True)
def added(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each block of the page whose first line is a comment with a path is that file, found beside ours."""
    root = tmp_path_factory.mktemp("added")
    for path, content in re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    packages = [importlib.import_module(f"mlcbuild.compiler.quantization{part}") for part in ("", ".schemes")]
    for package in packages:
        package.__path__.append(str(root / package.__name__.replace(".", "/")))
    yield
    for package in packages:
        package.__path__.pop()
    for name in [name for name in sys.modules if name.endswith(NAME) or ".quantization.row" in name]:
        del sys.modules[name]


def test_what_is_stored_comes_back_within_the_bound() -> None:
    scheme = schemes.scheme(NAME)
    parameter = schemes.matrix((40, 96), name="m.weight")
    numbers = np.random.default_rng(0).standard_normal(parameter.shape, np.float32)
    numbers[3] = 0
    stored = schemes.encoder(scheme).encode(parameter, numbers)
    assert [(array.shape, array.dtype.name) for array in stored] == [
        (tensor.shape, tensor.dtype) for tensor in scheme.stored(parameter)
    ]
    error = np.abs(schemes.encoder(scheme).decode(parameter, stored) - numbers)
    assert (error <= schemes.encoder(scheme).error_bound(parameter, numbers)).all()
    assert error.max() > 0


@pytest.mark.slow
def test_its_logits_are_those_of_transformers(tmp_path: Path, kernel_store: Path) -> None:
    check_logits(MODELS["grouped-64-tied"], NAME, tmp_path, kernel_store=kernel_store)
