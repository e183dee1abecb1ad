"""Actions in messages: by their titles, wherever the message names them."""

from __future__ import annotations

from mlcbuild.engine.action import ActionDescription
from mlcbuild.engine.action_titles import with_title
from tests.engine.steps import action

KERNEL = action("//:a CompileKernel kernel_ed71", mnemonic="CompileKernel", owner="//:a").described(
    ActionDescription(text="add n×2048 (ed71)", details=())
)
TITLE = KERNEL.title


def test_an_action_is_named_by_its_title_wherever_a_message_names_it() -> None:
    message = "the worker that ran //:a CompileKernel kernel_ed71 died\n  //:a CompileKernel kernel_ed71: it was killed"
    assert with_title(message, KERNEL) == f"the worker that ran {TITLE} died\n  {TITLE}: it was killed"


def test_the_equal_action_that_ran_is_named_as_the_one_that_waited_for_it() -> None:
    assert with_title("//:b CompileKernel x: no", KERNEL, shared_with="//:b CompileKernel x") == f"{TITLE}: no"


def test_another_action_whose_name_begins_in_the_same_way_keeps_its_name() -> None:
    message = "//:a CompileKernel kernel_ed71f failed"
    assert with_title(message, KERNEL) == message
