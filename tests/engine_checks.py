"""Which calls of `tests.engine_logits` and `tests.engine_passes` a library has to pass, by its kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.engine_functions import Engine, Kind
from tests.engine_logits import (
    check_drafts,
    check_logits,
    check_moving,
    check_sampling,
    check_softmax,
    check_token_chooser,
    check_top_p,
)
from tests.engine_passes import check_embedding_decoder, check_encoder, check_forward, check_hidden_states
from tests.engine_web import check_conversation, check_encoder_of_web

Check = Callable[[Engine, np.random.Generator, int], None]
OF_LOGITS: tuple[Check, ...] = (check_softmax, check_logits, check_moving)
ON_GPUS: tuple[Check, ...] = (check_sampling, check_token_chooser, check_top_p, check_drafts)


def checks_of(kind: Kind, *, gpu: bool, hidden_states: bool) -> tuple[Check, ...]:
    """They call every function that `expected_functions` says the library has."""
    if kind is Kind.ENCODER:
        return (check_encoder, check_encoder_of_web)
    if kind is Kind.EMBEDDING_DECODER:
        return (check_embedding_decoder,)
    sampling = ON_GPUS if gpu else ()
    return (
        check_forward,
        check_conversation,
        *((check_hidden_states,) if hidden_states else ()),
        *OF_LOGITS,
        *sampling,
    )
