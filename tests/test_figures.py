"""Bytes, transfer rates and short times as people read them."""

from __future__ import annotations

import pytest

from mlcbuild.figures import byte_count, duration, gibibytes, shortened_list, transfer_rate


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1_540, "1.5 kB"),
        (18_200_000, "18 MB"),
        (999_999, "1 MB"),
        (9_960_000, "10 MB"),
        (0.4, "0 B"),  # half a byte is none
    ],
)
def test_byte_counts(value: int, shown: str) -> None:
    assert byte_count(value) == shown


def test_memory_is_told_in_powers_of_1024() -> None:
    assert gibibytes(3 << 29) == "1.5 GiB"


def test_a_pace_is_bytes_a_second_and_no_time_divides_by_nothing() -> None:
    assert transfer_rate(662_000_000, 2.0) == "331 MB/s"
    assert transfer_rate(1, 0.0) == "1 GB/s"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0004, "0.4 ms"), (0.00995, "10 ms"), (0.0123, "12 ms"), (0.9996, "1.0 s"), (1.34, "1.3 s")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_long_list_is_told_by_its_first_items_and_a_number() -> None:
    assert shortened_list(["a", "b", "c"], 3) == "a, b, c"
    assert shortened_list([f"f{number}" for number in range(100)], 3) == "f0, f1, f2 and 97 more"
    assert shortened_list([]) == ""
