"""Messages of the Remote Execution API v2, as values with exact encodings.

Field numbers are those of `build/bazel/remote/execution/v2/remote_execution.proto`. `encode` writes fields in tag order
without defaults, as the digests of Action, Command and Directory require. `decode` ignores unknown fields, and raises
ValueError for bytes that are not the message. Lists keep their order. Lists that REAPI requires to be sorted are
checked when the value is made.
"""

from mlcbuild.cache.reapi.action import Action, Command, Platform
from mlcbuild.cache.reapi.directory import Directory, DirectoryNode, FileNode, SymlinkNode, Tree
from mlcbuild.cache.reapi.fields import check_name, decode_digest, encode_digest
from mlcbuild.cache.reapi.result import (
    ActionResult,
    AnyMessage,
    ExecutedActionMetadata,
    OutputDirectory,
    OutputFile,
    OutputSymlink,
)

__all__ = [
    "Action",
    "ActionResult",
    "AnyMessage",
    "Command",
    "Directory",
    "DirectoryNode",
    "ExecutedActionMetadata",
    "FileNode",
    "OutputDirectory",
    "OutputFile",
    "OutputSymlink",
    "Platform",
    "SymlinkNode",
    "Tree",
    "check_name",
    "decode_digest",
    "encode_digest",
]
