"""Files that a download left in place of the real ones: what they are, and what to do about them."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.errors import StageError

_LFS = b"version https://git-lfs.github.com/spec/"
_ANNEX = (b"/annex/objects/", b"../.git/annex/objects/", b".git/annex/objects/")
_PAGES = (b"<!doctype html", b"<html")
HEAD_BYTES = 512


def refuse_placeholder(head: bytes, where: Path | str) -> None:
    """Raise StageError if a file that begins with `head` stands for another one; `where` is the file's path."""
    if head.startswith(_LFS):
        raise StageError(
            f"{where} is a Git LFS pointer, not the file itself{_size_of_pointer(head)}",
            advice=(
                "run `git lfs pull` in the repository that it comes from, or fetch it with an hf_repository target",
            ),
        )
    if head.startswith(_ANNEX):
        raise StageError(
            f"{where} is a git-annex pointer, not the file itself",
            advice=("run `git annex get` in the repository that it comes from",),
        )
    if head.lstrip()[:20].lower().startswith(_PAGES):
        raise StageError(
            f"{where} is a web page, not the file itself",
            advice=("fetch it again: the address needs a token, or it is that of a page about the file",),
        )


def _size_of_pointer(head: bytes) -> str:
    """The size that a pointer says the file has, for its message."""
    for line in head.splitlines():
        word, _, value = line.partition(b" ")
        if word == b"size" and value.isdigit():
            return f", which has {int(value):,} bytes"
    return ""
