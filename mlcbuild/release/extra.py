"""The libraries of the extra `release`, which not everybody has installed."""

from __future__ import annotations

# Modules whose distribution has another name.
DISTRIBUTIONS = {"cyclonedx": "cyclonedx-python-lib", "sigstore_models": "sigstore-models"}


def package_of(error: ImportError) -> str:
    """The distribution whose module could not be imported."""
    module = (error.name or "").partition(".")[0]
    return DISTRIBUTIONS.get(module, module)
