"""Stages from nothing to a pinned file: each runs with the network and the user's own environment.

A fetch is keyed by its pin (SHA-256) and file name; where the bytes come from arrives in `hints`, which is not
in the key. Every module has `chunks`, which yields the bytes from wherever they are, and `run`, the stage.
"""
