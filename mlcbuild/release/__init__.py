"""Releases: packages with checksums, a bill of materials and signed provenance, and their verification."""
