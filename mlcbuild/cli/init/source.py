"""What `mlcbuild init` is given: a model on disk, or one of a Hugging Face repository."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cli.init.build_file import Table, target_name
from mlcbuild.errors import StageError, UsageError
from mlcbuild.rules.proposals import GGUF_SUFFIX, ModelInHand, model_in_hand
from mlcbuild.workspace.label import Label, LabelError

HUGGING_FACE = "hf:"
_REPOSITORY = re.compile(r"(?P<owner>[\w.-]+)/(?P<name>[\w.-]+)(?P<file>(/[^/@]+)+)?(@(?P<revision>[^@]+))?")
# What a GGUF file's name says of its weights: no part of the model's name, since it is quantized anew.
_GGUF_TYPE = re.compile(r"[.-](i?q\d\w*|b?f16|f32)$", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{40}")
# A pattern that matches nothing is an error, so these are the ones that every repository of a model has.
_FILES = ("*.json", "*.safetensors")
_LEGAL = "`mlcbuild info` lists the supported models, `mlcbuild info --legal` what they can be built for"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A model's name, the tables that its `model` refers to, and the value of that target's `source` or `config`.

    `model` is None for a model that is not here yet. `link` is a symbolic link to make in the workspace, and where it
    leads.
    """

    name: str
    value: str
    attribute: str = "source"
    tables: tuple[Table, ...] = ()
    model: ModelInHand | None = None
    fetched: str = ""  # the label of what is fetched
    link: tuple[Path, Path] | None = None


def read_source(text: str, *, root: Path, start: Path) -> Source:
    """The source that an argument names. Paths are relative to `start`. Raises UsageError, also for a model that cannot
    be built, with the reason."""
    if text.startswith(HUGGING_FACE):
        return _hugging_face(text)
    path = Path(os.path.normpath(start / text))
    if not path.exists():
        if "/" in text:
            raise UsageError(
                f"there is no {path}", advice=(f"a Hugging Face repository is written {HUGGING_FACE}owner/name",)
            )
        raise UsageError(
            f"there is no {path}",
            advice=(
                "init takes a model: a folder, a GGUF file, or hf:owner/name",
                "the workspace is written where you are: for one without a model, `mlcbuild init` in a new folder",
            ),
        )
    try:
        model = model_in_hand(path)
    except StageError as error:
        raise UsageError(error.message, advice=(*error.advice, _LEGAL)) from None
    return _on_disk(path, model, root)


def models_in(folder: Path) -> list[Path]:
    """The files and folders of a folder that look like models: GGUF files, and folders with a config.json."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.name.endswith(GGUF_SUFFIX) or (path.is_dir() and (path / "config.json").is_file()):
            found.append(path)
    return found


def _on_disk(path: Path, model: ModelInHand, root: Path) -> Source:
    name = target_name(_spoken_name(path))
    link = None
    if path == root:
        return _at_the_root(path, name, model)
    if root in path.parents:
        inside = path.relative_to(root).as_posix()
    else:
        inside = path.name
        link = (root / inside, path)
        if os.path.lexists(root / inside):
            raise UsageError(f"{root / inside} exists already, where the link to {path} would be")
    attribute = "source" if model.has_weights else "config"
    if attribute == "config" and path.is_dir():
        inside += "/config.json"
    try:
        Label("", inside)
    except LabelError as error:
        raise UsageError(f"{path}: {error.message}", advice=("rename it",)) from None
    # A target would count more than the file of its name.
    name = f"{name}-model" if name == inside else name
    return Source(name=name, value=inside, attribute=attribute, model=model, link=link)


def _at_the_root(root: Path, name: str, model: ModelInHand) -> Source:
    """A model whose files lie beside the BUILD.toml: no label names the folder itself."""
    if not model.has_weights:
        return Source(name=name, value="config.json", attribute="config", model=model)
    files = sorted(each.name for each in root.iterdir() if each.is_file() and _is_label(each.name))
    group = Table(rule="filegroup", values={"name": f"{name}-files", "srcs": files}, comment="The files of the model.")
    return Source(name=name, value=f":{name}-files", tables=(group,), model=model)


def _is_label(name: str) -> bool:
    """Whether a file can be named in a BUILD.toml, and is no hidden one."""
    try:
        Label("", name)
    except LabelError:
        return False
    return not name.startswith(".")


def _spoken_name(path: Path) -> str:
    """The name of a model: of a file or folder; of a snapshot in Hugging Face's cache that of its repository."""
    repository = path.parent.parent.name
    if path.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.rpartition("--")[2]
    return _without_type(path.name) if path.is_file() else path.name


def _without_type(file_name: str) -> str:
    return _GGUF_TYPE.sub("", file_name.removesuffix(GGUF_SUFFIX))


def _hugging_face(text: str) -> Source:
    found = _REPOSITORY.fullmatch(text.removeprefix(HUGGING_FACE))
    if found is None:
        raise UsageError(
            f'"{text}" is not a repository',
            advice=(
                f"write {HUGGING_FACE}owner/name, or {HUGGING_FACE}owner/name@REVISION",
                f"one file: {HUGGING_FACE}owner/name/file.gguf",
            ),
        )
    file = (found["file"] or "").removeprefix("/")
    if file and not file.endswith(GGUF_SUFFIX):
        raise UsageError(f'"{file}" is no GGUF file', advice=("for a whole repository leave the file out",))
    name = target_name(_without_type(file.rpartition("/")[2]) if file else found["name"])
    revision = found["revision"] or ""
    kind = "revision" if _COMMIT.fullmatch(revision) else "branch"
    fetched = Table(
        rule="hf_repository",
        values={
            "name": f"{name}-files",
            "repository": f"{found['owner']}/{found['name']}",
            **({kind: revision} if revision else {}),
            "files": [file] if file else list(_FILES),
        },
        comment=f"Fetched from Hugging Face. `mlcbuild fetch --update //:{name}-files` writes the commit and the "
        "digest of the files here; a build fetches exactly these."
        + ("" if file else "\nAdd other files that the model has: chat_template.jinja, tokenizer.model."),
    )
    return Source(name=name, value=f":{name}-files", tables=(fetched,), fetched=f"//:{name}-files")
