"""`mlcbuild init`: writes the BUILD.toml of a new workspace for a model, and builds nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.init.build_file import Table, build_text, check_place, target_name, write_new
from mlcbuild.cli.init.source import Source, models_in, read_source
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.rules.proposals import ModelInHand, Proposal, proposals
from mlcbuild.workspace.packages import BUILD_FILE

_PACKAGE = "model_package"
_LIBRARY = "model_library"
_OF_RULE = {
    _PACKAGE: "A package is what runs: the compiled model, its weights in that quantization, and its tokenizer.\n",
    _LIBRARY: "A library is the compiled model. It needs no weights; a model_package needs a model with `source`.\n",
}


def initialize(argument: str, options: GlobalOptions, *, start: Path) -> None:
    """Write `BUILD.toml` in the folder of `options` for the model that `argument` names, relative to `start`; for ""
    for the only model in that folder, if there is one. Prints the path of the file, and on standard error what it has
    and what comes next.

    Raises UsageError where there is a file or a workspace already, and for an argument that names no model or one that
    cannot be built; then nothing is written.
    """
    root = Path(os.path.normpath(options.directory))
    file = root / BUILD_FILE
    notes = check_place(root, file)
    source = read_source(argument, root=root, start=start) if argument else _only_model(root, notes)
    found = tuple(proposals(source.model if source else None))
    rule = _LIBRARY if source is not None and source.model is not None and not source.model.has_weights else _PACKAGE
    targets = _targets(rule, source.name, found) if source else []
    platform = next((each.platform for each in found if each.quantization), found[0].platform)
    tables = [_workspace(root, platform), *(_tables(source, rule, targets) if source else _example(found))]
    if source is not None and source.link is not None:
        _link(*source.link)
        notes.append(f"{source.link[0].name} is a link to {source.link[1]}")
    write_new(file, build_text(tables))
    print(file)
    options.tell((*notes, *_told(source, rule, targets, found)))


def _only_model(root: Path, notes: list[str]) -> Source | None:
    """The only model in a folder. Where there are several, a note names them."""
    candidates = models_in(root)
    if len(candidates) == 1:
        return read_source(str(candidates[0]), root=root, start=root)
    if candidates:
        names = ", ".join(path.name for path in candidates[:4]) + (", …" if len(candidates) > 4 else "")
        notes.append(f"models here: {names}; `mlcbuild init MODEL` writes targets for one of them")
    return None


def _workspace(root: Path, platform: str) -> Table:
    return Table(
        rule="workspace",
        values={"name": target_name(root.name), "default_platform": platform},
        comment="The root. `mlcbuild query @platforms//...` lists the platforms that need no target of your own.",
        is_list=False,
    )


def _tables(source: Source, rule: str, targets: list[Table]) -> Iterable[Table]:
    yield from source.tables
    yield Table(
        rule="model", values={"name": source.name, source.attribute: source.value}, comment=_about(source.model)
    )
    yield from targets
    names = [str(table.values["quantization"]) for table in targets]
    platforms = [str(table.values["platform"]) for table in targets]
    if targets:
        yield Table(
            rule=rule,
            values={
                "name": "{model}-{quantization}-{platform}",
                "matrix": {
                    "model": [f":{source.name}"],
                    "quantization": list(dict.fromkeys(names)),
                    "platform": list(dict.fromkeys(platforms)),
                },
            },
            comment="One table can define a target for each combination of values. What the cells share is built once.",
            is_example=True,
        )


def _targets(rule: str, name: str, found: Iterable[Proposal], *, is_example: bool = False) -> list[Table]:
    """A target for each proposal that a model can have; the first says what the rule is for."""
    suffix = "" if rule == _PACKAGE else "-lib"
    return [
        Table(
            rule=rule,
            values={
                "name": f"{name}-{proposal.backend.kind}{suffix}",
                "model": f":{name}",
                "quantization": proposal.quantization,
                "platform": proposal.platform,
            },
            comment=f"{_OF_RULE[rule] if not index else ''}For {proposal.backend.doc}{_refused(proposal)}",
            is_example=is_example,
        )
        for index, proposal in enumerate(each for each in found if each.quantization)
    ]


def _refused(proposal: Proposal) -> str:
    return "".join(f"\nNot {name}: {reason}." for name, reason in proposal.refused.items())


def _example(found: Iterable[Proposal]) -> Iterable[Table]:
    """Tables for a model that is not known yet, as comments."""
    yield Table(
        rule="model",
        values={"name": "my-model", "source": "weights/my-model"},
        comment="A model: a GGUF file, or a folder as on Hugging Face, below this one.",
        is_example=True,
    )
    yield from _targets(_PACKAGE, "my-model", found, is_example=True)


def _about(model: ModelInHand | None) -> str:
    if model is None:
        return "Its family is known when config.json is fetched."
    description = model.known.description
    return (
        f"A model of the family {description.family} (model type {description.model_type}), "
        f"{description.layers.count} layers, context {description.sizes.context_window_size}."
    )


def _link(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target, target_is_directory=target.is_dir())
    except OSError as error:
        raise LocalEnvironmentError(f"{link} cannot be made: {error.strerror or error}") from error


def _told(source: Source | None, rule: str, targets: list[Table], found: tuple[Proposal, ...]) -> Iterable[str]:
    if source is None:
        yield "no model yet: the file shows how to add one"
        return
    if source.model is not None:
        yield f"//:{source.name} is of the family {source.model.family.name}: {source.model.family.models}"
    labels = [f"//:{table.values['name']}" for table in targets]
    for proposal in found:
        if not proposal.quantization:
            reasons = "; ".join(dict.fromkeys(proposal.refused.values()))
            yield f"no target for kind {proposal.backend.kind}: {reasons}; see `mlcbuild info --legal`"
    yield "next:"
    if source.fetched:
        yield f"  mlcbuild fetch --update {source.fetched}"
    if labels:
        yield f"  mlcbuild build {labels[0]}"
        if rule == _PACKAGE:
            yield f'  mlcbuild run {labels[0]} -- --prompt "Hello"'
