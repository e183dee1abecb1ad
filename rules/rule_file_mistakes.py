"""Advice on an exception that a rule file of a workspace raised: the names that there are, where it uses another."""

from __future__ import annotations

import enum
import inspect
import re
from typing import Any

from mlcbuild.suggestions import known_values

_UNEXPECTED = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")


def advice_on(error: Exception) -> tuple[str, ...]:
    """One line that lists what an object or a call of mlcbuild's has; nothing where that would say nothing."""
    told = ""
    if isinstance(error, AttributeError) and error.name:
        told = known_values(error.name, _names(error.obj), intro=f"{_title(error.obj)} has")
    elif isinstance(error, TypeError) and (found := _UNEXPECTED.search(str(error))):
        called, word = found[1].removesuffix(".__init__"), found[2]
        told = known_values(word, _parameters(error, called), intro=f"{called} takes")
    return (told,) if told else ()


def _names(holder: object) -> list[str]:
    """The members of an enum, and of another object of ours the methods and then the fields, as they are declared."""
    if isinstance(holder, enum.EnumMeta):
        return list(holder.__members__)
    kind = holder if isinstance(holder, type) else type(holder)
    if not kind.__module__.startswith("mlcbuild."):
        return []
    declared = {name: value for base in reversed(kind.__mro__[:-1]) for name, value in vars(base).items()}
    methods = [name for name, value in declared.items() if inspect.isroutine(value)]
    fields = [*inspect.get_annotations(kind), *declared, *getattr(holder, "__dict__", {})]
    return [name for name in dict.fromkeys([*methods, *fields]) if not name.startswith("_")]


def _title(holder: object) -> str:
    return holder.__name__ if isinstance(holder, type) else type(holder).__name__


def _parameters(error: Exception, called: str) -> list[str]:
    """What the callable of that qualified name takes, by the rule file's own names or by those of what it calls."""
    first, *rest = called.split(".")
    trace = error.__traceback__
    found: Any = None
    while trace is not None and found is None:
        frame, trace = trace.tb_frame, trace.tb_next
        known = (type(value) for value in frame.f_locals.values())
        found = frame.f_globals.get(first) or next((kind for kind in known if kind.__name__ == first), None)
    for name in rest:
        found = getattr(found, name, None)
    if not callable(found):
        return []
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # It does not say what it takes.
        return []
    return [one.name for one in parameters if one.name != "self" and one.kind is not one.VAR_KEYWORD]
