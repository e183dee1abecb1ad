"""Blobs and results in a bucket of any S3-compatible store: `transport.S3Transport`, made from `settings.S3Settings`.

Nothing here imports boto3 before the first request: it costs half a second.
"""
