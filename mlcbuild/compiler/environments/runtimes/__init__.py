"""Runtimes of other compilers, one a module: how each loads and calls what its compiler made.

Each module has `prepare(threads)`, which imports the runtime, and `load(artifact, inputs, outputs, threads, …)`, which
returns a function from arrays by the names of inputs to arrays by the names of outputs. They run in the environment of
the runtime, and import nothing of it but in functions.
"""
