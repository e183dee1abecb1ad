"""What runs in an environment, by its Python. Each module is a program, with a function from files to files.

It imports the standard library, and inside of its functions what the environment has: a stage gets the program as a
plug-in, and so the module is imported where none of that is installed. It cannot import mlcbuild. It raises SystemExit
with a message for input that it cannot use.
"""
