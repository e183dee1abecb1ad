"""Blobs and results in a bucket of any S3-compatible server: `transport.S3Transport`, made from `settings.S3Settings`.

boto3 is imported at the first request, because that takes half a second.
"""
