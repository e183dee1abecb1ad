"""Fields of Mamba 2's layers that several configurations share."""

from __future__ import annotations

import math

from mlcbuild.compiler.models.architecture.recurrence import StateSpaceConfig
from mlcbuild.compiler.models.config import ConfigReader


def read_state_space(reader: ConfigReader, *, hidden_size: int, norm_epsilon: float) -> StateSpaceConfig:
    """By the names of transformers' `Mamba2Config`, or those that `reader.with_names` gives. A `head_dim` that is
    missing, or "auto", follows from the others. Raises StageError for sizes that do not fit each other."""
    heads = reader.integer("num_heads", low=1, high=1 << 12)
    groups = reader.integer("n_groups", low=1, high=1 << 12)
    inner = reader.number("expand", low=1e-3, high=1e3) * hidden_size
    follows = reader.value("head_dim") in (None, "auto")
    head_dim = int(inner) // heads if follows else reader.integer("head_dim", low=1, high=1 << 12)
    if inner != heads * head_dim:
        sizes = f'is {heads}, and "head_dim" {head_dim}'
        raise reader.fail("num_heads", f'{sizes}; "expand" says that all heads have {inner:g} elements')
    if heads % groups:
        raise reader.fail("n_groups", f'is {groups}; it has to divide "num_heads", which is {heads}')
    least, most = read_step_limits(reader)
    return StateSpaceConfig(
        heads=heads,
        head_dim=head_dim,
        groups=groups,
        state_size=reader.integer("state_size", low=1, high=1 << 12),
        convolution=reader.integer("conv_kernel", low=2, high=16),
        convolution_bias=reader.boolean("use_conv_bias", default=True),
        bias=reader.boolean("use_bias", default=False),
        norm_epsilon=norm_epsilon,
        least_step=least,
        most_step=most,
    )


def read_step_limits(reader: ConfigReader) -> tuple[float, float | None]:
    """The least and the greatest step, by `time_step_limit`; None where the latter has no bound. Raises StageError for
    another list."""
    found = reader.value("time_step_limit")
    if found is None:
        return 0.0, None
    # JSON has no word for an infinite number: files have Python's `Infinity`, or the object that transformers 5 writes.
    if isinstance(found, list):
        found = [math.inf if each == {"__float__": "Infinity"} else each for each in found]
    if not isinstance(found, list) or [type(each) in (int, float) for each in found] != [True, True]:
        raise reader.fail("time_step_limit", "has to be a list of two numbers, the least and the greatest step")
    least, most = float(found[0]), float(found[1])
    if not 0 <= least <= most:
        raise reader.fail(
            "time_step_limit", f"is {found}; steps are not negative, and the second number is the greater"
        )
    return least, None if math.isinf(most) else most
