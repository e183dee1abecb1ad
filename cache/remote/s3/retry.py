"""Retries of a part of a transfer, so that one reset does not lose gigabytes.

Callers of the transport retry whole transfers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from mlcbuild.cache.remote.s3.errors import S3Error
from mlcbuild.cache.remote.s3.operation import Operation
from mlcbuild.cache.remote.transport import ErrorKind

T = TypeVar("T")
ATTEMPTS = 4
_LONGEST_WAIT = 5.0
_CALLERS_OWN = (404, 409, 412)  # Retrying the request is not enough.


def retry(operation: Operation, attempt: Callable[[], T]) -> T:
    """The answer of the first attempt without a transient error. Pauses grow and are jittered (0 to 0.2, 0.4, 0.8 s),
    or are what the server asks for, up to 5 s. Raises the last error.
    """
    for number in range(1, ATTEMPTS):
        try:
            return attempt()
        except S3Error as error:
            wait = max(error.retry_after, random.uniform(0.0, 0.1 * 2**number))
            is_passing = error.kind is ErrorKind.TRANSIENT and wait <= _LONGEST_WAIT
            is_passing = is_passing and error.status not in _CALLERS_OWN
            if not is_passing or not operation.sleep(wait):
                raise
    return attempt()
