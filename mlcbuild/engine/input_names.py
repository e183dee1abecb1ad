"""The names that users know inputs by, in messages that name them by their places in an action's directory.

Inputs are laid out by argument names, so that equal actions have one key. A message from inside says
`in/source/config.json`; users know that file as `models/smollm2/config.json` or as `//models:fetched/config.json`.
"""

from __future__ import annotations

import re

from mlcbuild.engine.action import Action, Artifact, DerivedArtifact, Input, SourceArtifact, StageCall


def with_input_names(message: str, action: Action) -> str:
    """The message with the name of each input in place of its path in the action's directory.

    A file of the workspace is named by its path, an output of another action by the label of its target. A file that
    is not there is named below its folder.
    """
    if not isinstance(action.command, StageCall) or not action.inputs:
        return message  # A tool has its inputs at the paths that users gave them.
    names = {item.path.removesuffix("/"): _name(item.artifact) for item in action.inputs}
    for argument, value in (*action.command.inputs, *action.command.groups):
        if isinstance(value, str):
            folder = value if value.endswith("/") else value.rpartition("/")[0] + "/"
            names.setdefault(folder.removesuffix("/"), _folder(argument, folder, action))
    longest_first = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{longest_first})(?![\w-])", lambda found: names[found[0]], message)


def _name(artifact: Artifact) -> str:
    if isinstance(artifact, SourceArtifact):
        return artifact.path
    label = artifact.action.partition(" ")[0]
    if isinstance(artifact, DerivedArtifact) and not artifact.path.endswith("/"):
        return f"{label}/{artifact.path.rpartition('/')[2]}"
    return label


def _folder(argument: str, folder: str, action: Action) -> str:
    """The folder whose files lie below `folder`, if they come from one; else what the argument is called."""
    found = {_root(item, folder) for item in action.inputs if item.path.startswith(folder)}
    root = found.pop() if len(found) == 1 else ""
    return root or f'"{argument}" of {action.owner}'


def _root(item: Input, folder: str) -> str:
    """The folder that has an input's file at the same relative path, or ""."""
    name, relative = _name(item.artifact), item.path.removeprefix(folder)
    return name.removesuffix(f"/{relative}") if name.endswith(f"/{relative}") else ""
