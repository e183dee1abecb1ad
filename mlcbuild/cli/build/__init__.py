"""One build: loads the workspace, puts the parts of a build together, drives it, and answers with an exit code."""
