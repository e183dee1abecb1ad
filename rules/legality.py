"""Which combinations of a model family, a quantization and a kind of target can be built: one table.

A family says which state its sequences keep, a scheme in which type a model computes, and a backend what it has kernels
for. Checks of targets quote this table, and `mlcbuild info --legal` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlcbuild.compiler.models.configuring import no_kernels_for_state
from mlcbuild.rules.backend import Backend, PlatformInfo, backends

if TYPE_CHECKING:
    from mlcbuild.compiler.models.family import Family
    from mlcbuild.compiler.quantization.scheme import QuantizationScheme


@dataclass(frozen=True, slots=True, kw_only=True)
class Legality:
    """One row of the table. `note` says on which platforms of the kind a legal combination can be built, "" for all of
    them, and why an illegal one cannot."""

    family: str
    quantization: str
    kind: str
    is_legal: bool
    note: str


def legality(family: Family[Any], scheme: QuantizationScheme, backend: Backend) -> Legality:
    """Whether a model of the family, quantized so, can be built for a platform of the kind."""
    illegal = ""
    if family.kv_state_kind not in backend.kv_state_kinds:
        illegal = no_kernels_for_state(
            f"kind {backend.kind}", family.kv_state_kind, f"models of the family {family.name}"
        )
    elif scheme.model_dtype not in backend.model_dtypes:
        illegal = _no_dtype(scheme, backend)
    return Legality(
        family=family.name,
        quantization=scheme.name,
        kind=backend.kind,
        is_legal=not illegal,
        note=illegal or backend.model_dtypes[scheme.model_dtype],
    )


def dtype_error(scheme: QuantizationScheme, platform: PlatformInfo) -> str | None:
    """Why a platform cannot compute as a scheme wants; None where it can."""
    backend = backends()[platform.kind]
    if scheme.model_dtype not in backend.model_dtypes:
        return _no_dtype(scheme, backend)
    lack = platform.lacks_dtype(scheme.model_dtype)
    return f"{scheme.name} computes in {scheme.model_dtype}: {lack}" if lack else None


def _no_dtype(scheme: QuantizationScheme, backend: Backend) -> str:
    return f"{scheme.name} computes in {scheme.model_dtype}, which kind {backend.kind} has no kernels for"


def table(
    families: Iterable[Family[Any]], schemes: Iterable[QuantizationScheme], backends: Iterable[Backend]
) -> Iterator[Legality]:
    """Every combination, in the order given."""
    all_schemes, all_backends = tuple(schemes), tuple(backends)
    for family in families:
        for scheme in all_schemes:
            for backend in all_backends:
                yield legality(family, scheme, backend)
