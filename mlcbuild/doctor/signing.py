"""Signatures of results: whether what this machine signs is believed by who trusts the same keys."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult, ExecutedActionMetadata
from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.cache.remote.opening import open_signatures
from mlcbuild.cache.remote.signing import UNKNOWN, Signatures
from mlcbuild.doctor.check import Check
from mlcbuild.doctor.examination import of_error
from mlcbuild.doctor.finding import Finding, mistake, ok, problem, skipped, warning
from mlcbuild.errors import CacheError


def signing_checks(configuration: RemoteConfiguration) -> Sequence[Check]:
    return (
        Check(name="trusted keys", examine=lambda: trusted(configuration)),
        Check(name="our key", examine=lambda: ours(configuration)),
    )


def trusted(configuration: RemoteConfiguration) -> Finding:
    keys = configuration.trusted_keys
    if not keys:
        return skipped("none: whatever this server has is believed", "name the keys that sign: trusted_keys")
    told = f"{len(keys)}: {', '.join(key.line for key in keys)}"
    if _believes_namespace(configuration):
        told += f"; in the namespace {configuration.namespace} also what nobody signed"
    return ok(told, count=len(keys))


def ours(configuration: RemoteConfiguration) -> Finding:
    """A result is signed and checked by others' eyes."""
    if not configuration.policy.sends:
        return skipped("nothing is sent, so nothing is signed")
    if configuration.signing_key is None:
        if not configuration.trusted_keys:
            return skipped("none: what is sent is not signed")
        if _believes_namespace(configuration):
            where = f"the namespace {configuration.namespace}"
            return ok(f"none: results go unsigned to {where}, where this machine believes them, and who says the same")
        return warning(
            "results are sent unsigned, and who trusts keys, as is done here, misses them",
            "set signing_key in the user's settings, or MLCBUILD_REMOTE_SIGNING_KEY",
        )
    key = Digest(os.urandom(32).hex(), 100)
    result = ActionResult(execution_metadata=ExecutedActionMetadata(worker="mlcbuild doctor"))
    try:
        line = configuration.signing_key.public.line
    except CacheError as error:
        return mistake(error.message, *error.advice) if _is_installed() else of_error(error)
    signed = open_signatures(configuration).sign(key, result)
    others = Signatures(trusted_keys=configuration.trusted_keys, salt=configuration.salt)
    reason = others.check(key, signed)
    if reason == UNKNOWN:
        return mistake(
            f"results are signed by {line}, which is none of the trusted keys",
            "add it to trusted_keys where results are read, or sign with another one",
        )
    if reason:
        return problem(f"what was signed a moment ago is {reason}", "install cryptography again")
    other = Digest(os.urandom(32).hex(), 100)
    if configuration.trusted_keys and not others.check(other, signed):
        return problem("a signature is believed for another action", "install cryptography again")
    by = f"signs as {line}"
    return ok(f"{by}, which is trusted" if configuration.trusted_keys else f"{by}; no keys are trusted here")


def _believes_namespace(configuration: RemoteConfiguration) -> bool:
    """Whether what nobody signed is believed in the place that results are sent to."""
    return bool(configuration.namespace and configuration.unsigned_in_namespace)


def _is_installed() -> bool:
    return importlib.util.find_spec("cryptography") is not None
