"""Tests everything that a build uses, part by part, and advises how to fix errors.

A part is a list of checks, in a module of its own. A check measures one thing and returns a `Finding`. Checks print
nothing. `examination` gives each check a deadline and turns any exception into a finding. What is slow or may crash
(tvm, CUDA's compiler, a driver) is tested in a separate process.
"""
