"""From the hidden states of a text's tokens to the vector that stands for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcbuild.errors import UsageError

Array = npt.NDArray[Any]

STRATEGIES = ("cls", "mean", "last")
_SHORTEST = 1e-12  # a vector that is shorter stays as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """`strategy` is one of `STRATEGIES`: the first token's, the mean of all, the last one's. `normalize`: a vector is
    divided by its length, the root of the sum of squares."""

    strategy: str
    normalize: bool

    @staticmethod
    def of(metadata: Mapping[str, Any]) -> Pooling:
        """What a library's metadata say. Raises UsageError for a library of no embedding model, and for one that says
        something else."""
        if metadata.get("model_task") != "embedding":
            raise UsageError(
                "the model generates text and makes no embeddings",
                advice=("use --prompt, --chat or --batch with prompts",),
            )
        found = metadata.get("embedding_metadata") or {}
        strategy = found.get("pooling_strategy")
        if strategy not in STRATEGIES:
            raise UsageError(f'the library pools by "{strategy}"; known: {", ".join(STRATEGIES)}')
        return Pooling(strategy=strategy, normalize=bool(found.get("normalize", True)))

    def vector(self, hidden: Array) -> Array:
        """Of hidden states (tokens, hidden), at least one: (hidden,) in float32."""
        wide = np.asarray(hidden, np.float32)
        if self.strategy == "mean":
            pooled = wide.mean(axis=0, dtype=np.float64)
        else:
            pooled = wide[0 if self.strategy == "cls" else -1].astype(np.float64)
        length = float(np.linalg.norm(pooled))
        if self.normalize and length > _SHORTEST:
            pooled = pooled / length
        vector: Array = pooled.astype(np.float32)
        return vector
