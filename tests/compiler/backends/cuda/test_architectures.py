"""Architectures have an order, the lowest first, whatever the order in which they are asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.compiler.backends.cuda.architectures import ARCHITECTURES, in_order, problem


@given(names=st.lists(st.sampled_from(ARCHITECTURES)))
def test_the_order_is_that_of_the_numbers(names: list[str]) -> None:
    ordered = in_order(names)
    assert set(ordered) == set(names)
    assert len(ordered) == len(set(names))
    numbers = [int(name.removeprefix("sm_").rstrip("af")) for name in ordered]
    assert numbers == sorted(numbers)


def test_a_plain_name_comes_before_its_variants() -> None:
    assert in_order(["sm_100f", "sm_90a", "sm_100", "sm_90", "sm_100a", "sm_80"]) == (
        "sm_80",
        "sm_90",
        "sm_90a",
        "sm_100",
        "sm_100a",
        "sm_100f",
    )


def test_what_is_no_architecture_is_told() -> None:
    assert problem("sm_90a") is None
    assert problem("compute_90") is not None
    with pytest.raises(ValueError, match="'90' is no GPU architecture"):
        in_order(["90"])
