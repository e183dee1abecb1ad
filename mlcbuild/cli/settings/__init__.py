"""Where the value of a setting comes from, and what a command makes of it.

A setting may stand in four sources. The first that has it counts, for each setting by itself:

1. an option of the command
2. an environment variable
3. the user's `settings.toml` (`user_file`)
4. the root `BUILD.toml`

Each subject goes through the same stages:

=====================  ===================================  ===============================
stage                  remote cache                         execution
=====================  ===================================  ===============================
the command line       `remote.RemoteOptions`               `execution.ExecutionOptions`
a table of a file      `workspace.remote.RemoteTable`       `workspace.execution.ExecutionTable`
every source, merged   `sources.Settings`                   `sources.Settings`
what a build uses      `cache.remote.RemoteConfiguration`   `execution.ResolvedExecution`
=====================  ===================================  ===============================

An error names the source of the setting that causes it.
"""
