"""Texts to vectors, with a package of an embedding model."""
