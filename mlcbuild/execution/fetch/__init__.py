"""Stages that make a pinned file from nothing. They run with the network and the user's own environment.

The key of a fetch contains its pin (SHA-256) and file name. The source of the bytes is in `hints`, which are not in the
key. Every module has `chunks`, which yields the bytes from their source, and `run`, the stage.
"""
