"""Tries what a build stands on, part by part, and says what to do about what was found.

A part is a list of checks, a module each; a check measures one thing for real and answers with a `Finding`. Checks
print nothing and raise what they like: `examination` gives each a deadline and makes a finding of whatever ends it.
What is slow or may crash (tvm, CUDA's compiler, a driver) is tried in processes of its own.
"""
