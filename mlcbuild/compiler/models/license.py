"""What a model's source says of its licence, and the texts that come with it.

GGUF files say it in the metadata `general.license`, `.name` and `.link` (ggml-org/ggml, docs/gguf.md). Folders as on
Hugging Face say it in the YAML block at the beginning of README.md: `license`, one of the hub's identifiers or several,
and for "other" `license_name` and `license_link` (huggingface.co/docs/hub/model-cards). Nothing is interpreted here:
which of it is an SPDX expression is for the reader to say.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_CARD = "README.md"
_CARD_BYTES = 1 << 18
_TEXT_BYTES = 1 << 20
_FENCE = "---"
STATED = "stated.json"
TEXTS = "texts"
# LICENSE, LICENCE.txt, COPYING, NOTICE, USE_POLICY.md, Notice …
_TEXT_NAMES = ("license", "licence", "copying", "notice", "use_policy", "acceptable_use_policy")


@dataclass(frozen=True, kw_only=True)
class StatedLicense:
    """`names` are as the source writes them; () if it says nothing. `where` says where it does."""

    names: tuple[str, ...] = ()
    own_name: str = ""  # of a licence without an identifier
    link: str = ""
    where: str = ""

    def __bool__(self) -> bool:
        return bool(self.names or self.own_name or self.link)

    def document(self) -> str:
        """The text of stated.json."""
        fields = {"license": list(self.names), "name": self.own_name, "link": self.link, "where": self.where}
        return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


def stated_in_metadata(metadata: Mapping[str, object]) -> StatedLicense:
    """What the metadata of a GGUF file says."""
    name, link = _text(metadata.get("general.license.name")), _text(metadata.get("general.license.link"))
    names = _texts(metadata.get("general.license"))
    return _stated(names, name, link, "the metadata general.license")


def stated_in_directory(directory: Path) -> StatedLicense:
    """What the model card says. A card that cannot be read as one says nothing."""
    fields = _front_matter(directory / _CARD)
    name, link = _text(fields.get("license_name")), _text(fields.get("license_link"))
    return _stated(_texts(fields.get("license")), name, link, _CARD)


def write_licenses(stated: StatedLicense, directory: Path, licenses: Path) -> None:
    """Write stated.json, and below texts/ the texts that lie in `directory`, where the source is."""
    texts = _texts_in(directory)
    (licenses / TEXTS if texts else licenses).mkdir(parents=True, exist_ok=True)
    (licenses / STATED).write_text(stated.document(), encoding="utf-8")
    for text in texts:
        shutil.copyfile(text, licenses / TEXTS / text.name)


def _texts_in(directory: Path) -> list[Path]:
    """The files with texts of licences, by their usual names, sorted. Large ones are something else."""
    return sorted(
        path
        for path in directory.iterdir()
        if path.name.lower().startswith(_TEXT_NAMES) and path.is_file() and path.stat().st_size <= _TEXT_BYTES
    )


def _stated(names: tuple[str, ...], own_name: str, link: str, where: str) -> StatedLicense:
    stated = StatedLicense(names=names, own_name=own_name, link=link, where=where)
    return stated if stated else StatedLicense()


def _front_matter(card: Path) -> Mapping[str, object]:
    if not card.is_file():
        return {}
    with card.open("rb") as stream:
        lines = stream.read(_CARD_BYTES).decode(errors="replace").removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        return {}
    ends = [number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE]
    if not ends:
        return {}
    import yaml

    try:
        found = yaml.safe_load("\n".join(lines[1 : ends[0]]))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        print(f"{card.name}: its first block is not YAML, so it says nothing of a licence: {error}")
        return {}
    return found if isinstance(found, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    members = value if isinstance(value, list) else [value]
    return tuple(text for member in members if (text := _text(member)))


def _text(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
