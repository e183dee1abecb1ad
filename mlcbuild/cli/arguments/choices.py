"""The words that options take, one enumeration an option."""

from __future__ import annotations

import enum


class RemoteUpload(enum.StrEnum):
    """The values of `--remote-upload`."""

    NEVER = "never"
    RESULTS = "results"
    ALWAYS = "always"


class ExecutorChoice(enum.StrEnum):
    """The values of `--executor`."""

    LOCAL = "local"
    RAY = "ray"
    AUTO = "auto"


class WorkersChoice(enum.StrEnum):
    """The values of `--workers`."""

    COLD = "cold"
    WARM = "warm"


class ProgressChoice(enum.StrEnum):
    """The values of `--progress`."""

    AUTO = "auto"
    PLAIN = "plain"
    QUIET = "quiet"


class TestOutput(enum.StrEnum):
    """The values of `--test-output`, Bazel's."""

    __test__ = False  # pytest takes classes of such names for tests

    SUMMARY = "summary"  # logs are files
    ERRORS = "errors"  # those of tests that did not pass are printed
    ALL = "all"


class AnnotationsChoice(enum.StrEnum):
    """The values of `--annotations`."""

    AUTO = "auto"
    GITHUB = "github"
    NONE = "none"


class CiSystem(enum.StrEnum):
    """The values of `init --ci`."""

    GITHUB = "github"
    GITLAB = "gitlab"


class QueryOutput(enum.StrEnum):
    """The values of `query --output`."""

    LABEL = "label"
    LABEL_KIND = "label_kind"
    TREE = "tree"
    DOT = "dot"
    MERMAID = "mermaid"
    JSON = "json"


class MatrixOutput(enum.StrEnum):
    """The values of `matrix --output`."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    GITLAB = "gitlab"


class AffectedOutput(enum.StrEnum):
    """The values of `affected --output`."""

    LABEL = "label"
    TEXT = "text"
    JSON = "json"
