"""A long log keeps its head and its tail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.execution.log import BoundedLog


@given(pieces=st.lists(st.binary(max_size=40)), kept=st.integers(1, 50))
def test_a_log_is_whole_or_head_and_tail(pieces: list[bytes], kept: int) -> None:
    log = BoundedLog(kept)
    for piece in pieces:
        log.write(piece)
    whole = b"".join(pieces)
    if len(whole) <= 2 * kept:
        assert log.bytes() == whole
    else:
        dropped = len(whole) - 2 * kept
        note = f"\n[… {dropped} bytes left out …]\n".encode()
        assert log.bytes() == whole[:kept] + note + whole[-kept:]
