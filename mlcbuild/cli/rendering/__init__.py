"""Outputs of actions as text: IR, source code, assembly. `show` and `diff` print it."""
