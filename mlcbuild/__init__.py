"""mlcbuild: a build system whose actions are the stages of an LLM compile pipeline."""

__version__ = "0.1.0"
