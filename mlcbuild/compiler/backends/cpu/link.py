"""How libraries for CPUs are linked: one ELF file, without device modules."""

from __future__ import annotations

from mlcbuild.compiler.elf_library import write_elf_library
from mlcbuild.compiler.linking import Linking

LINKING = Linking(write_library=write_elf_library)
