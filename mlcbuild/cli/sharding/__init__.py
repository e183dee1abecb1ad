"""Shards: parts of what patterns match, each for a machine of its own."""
