"""Any stage that takes a scheme, for a target with several: they become one, by a precision.json.

The stage itself is a plug-in, so that the key of an action counts what it is, and stages know nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from mlcbuild.compiler.quantization.mixed.precision import read_precision
from mlcbuild.compiler.quantization.mixed.scheme import MixedScheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme


def run(
    *,
    stage: Callable[..., None],
    precision: Path,
    schemes: Sequence[QuantizationScheme],
    encoder: Callable[..., object] | None = None,
    encoders: Sequence[Callable[..., object]] = (),
    reader: Callable[..., object] | None = None,
    readers: Sequence[Callable[..., object]] = (),
    **arguments: object,
) -> None:
    """Call `stage` with the mixed scheme as its `scheme`, and with the rest of its arguments. A stage that takes an
    `encoder` or a `reader` gets the mixed one, which is made of the classes `encoders` or `readers`."""
    if encoder is not None:
        arguments["encoder"] = partial(encoder, encoders=encoders)
    if reader is not None:
        arguments["reader"] = partial(reader, readers=readers)
    stage(scheme=MixedScheme(precision=read_precision(precision), schemes=tuple(schemes)), **arguments)
