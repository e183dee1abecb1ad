"""Renders files of the disk cache as text, each by what it holds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cli.rendering.disassembly import disassembled
from mlcbuild.cli.rendering.forms import FIRST_BYTES, Form, form_of
from mlcbuild.cli.rendering.stage_runner import StageRun, StageRunner
from mlcbuild.engine.action import Action, CachePolicy, Input, SourceArtifact, StageCall
from mlcbuild.engine.executor import FileEntry
from mlcbuild.errors import MlcbuildError
from mlcbuild.figures import byte_count

_LARGEST_TEXT = 64 << 20  # bytes of a file that is shown as it is
_STAGES = {Form.MODULE: "module", Form.EXECUTABLE: "executable"}
_SOURCE, _TEXT = "in/source", "out/text"


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """A file as text, or `missing`, which says why there is none."""

    form: Form
    text: str = ""
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class Renderer:
    """Renders each content once. TVM is only loaded by stages, whose results the disk cache keeps."""

    store: DiskStore
    runner: StageRunner
    progress: Callable[[int, int], object] = lambda *_: None
    _known: dict[Digest, Rendering] = field(default_factory=dict)

    def form(self, digest: Digest) -> Form:
        """What a file holds. Raises CacheError if the disk cache does not have it any more."""
        with self.store.open(digest) as stream:
            return form_of(stream.read(FIRST_BYTES))

    def render(self, digests: Iterable[Digest]) -> dict[Digest, Rendering]:
        """The texts of files. Raises MlcbuildError if stages cannot run."""
        wanted = list(dict.fromkeys(digests))
        by_stage: list[tuple[Digest, Form]] = []
        here: list[tuple[Digest, Form]] = []
        for digest in wanted:
            if digest in self._known:
                continue
            try:
                form = self.form(digest)
            except MlcbuildError:
                self._known[digest] = Rendering(form=Form.BINARY, missing="it is no longer in the disk cache")
                continue
            (by_stage if form in _STAGES else here).append((digest, form))
        # Each waits for a program.
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            for (digest, _), rendering in zip(here, threads.map(lambda each: self._rendered(*each), here), strict=True):
                self._known[digest] = rendering
                self.progress(len(self._known), len(wanted))
        runs = [
            StageRun(action=_action(form), inputs=(FileEntry(path=_SOURCE, digest=digest),))
            for digest, form in by_stage
        ]
        before = len(wanted) - len(runs)
        ends = self.runner.run(runs, keeps=True, progress=lambda done, _: self.progress(before + done, len(wanted)))
        for (digest, form), end in zip(by_stage, ends, strict=True):
            text = self.store.read(end.outputs[0].digest).decode("utf-8", "replace") if end.outputs else ""
            self._known[digest] = Rendering(form=form, text=text, missing=end.failure)
        return {digest: self._known[digest] for digest in wanted}

    def _rendered(self, digest: Digest, form: Form) -> Rendering:
        path = Path(self.store.path_of(digest))
        match form:
            case Form.NATIVE | Form.CUBIN | Form.FAT_BINARY:
                made = disassembled(path, form)
                return Rendering(form=form, text=made.text, missing=made.missing)
            case Form.BINARY:
                return Rendering(form=form, missing=f"{byte_count(digest.size_bytes)} that are no text")
        if digest.size_bytes > _LARGEST_TEXT:
            return Rendering(form=form, missing=f"a text of {byte_count(digest.size_bytes)} is not shown")
        text = self.store.read(digest).decode("utf-8", "replace")
        return Rendering(form=form, text=_indented(text) if form is Form.JSON else text)


def _indented(text: str) -> str:
    """JSON with a value a line, so that a difference is a line. What is no JSON after all stays as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"
    except ValueError:
        return text


def _action(form: Form) -> Action:
    """The action that renders a file of this form. Its result is of no use to other machines."""
    return Action(
        identifier=f"render {form.title}",
        mnemonic="RenderIR",
        owner="",
        inputs=(Input(path=_SOURCE, artifact=SourceArtifact(path=_SOURCE)),),
        outputs=(_TEXT,),
        command=StageCall(
            function=f"mlcbuild.compiler.stages.render_ir:{_STAGES[form]}",
            inputs=(("source", _SOURCE),),
            outputs=(("text", _TEXT),),
        ),
        toolchains=("tvm",),
        cache=CachePolicy.LOCAL,
    )
