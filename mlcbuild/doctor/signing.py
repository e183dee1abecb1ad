"""Signatures of results: whether machines that trust the same keys accept what this machine signs."""

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
from mlcbuild.doctor.finding import Finding, failed, ok, skipped, warning, wrong_setting
from mlcbuild.errors import CacheError


def signing_checks(configuration: RemoteConfiguration) -> Sequence[Check]:
    return (
        Check(name="trusted keys", examine=lambda: trusted(configuration)),
        Check(name="our key", examine=lambda: ours(configuration)),
    )


def trusted(configuration: RemoteConfiguration) -> Finding:
    keys = configuration.trusted_keys
    if not keys:
        return skipped(
            "none: all results of this server are accepted", "to accept only signed results, set trusted_keys"
        )
    measured = f"{len(keys)}: {', '.join(key.line for key in keys)}"
    if _accepts_unsigned(configuration):
        measured += f"; in the namespace {configuration.namespace} also unsigned results"
    return ok(measured, count=len(keys))


def ours(configuration: RemoteConfiguration) -> Finding:
    """Signs a result, and verifies it as another machine would."""
    if not configuration.policy.sends:
        return skipped("nothing is sent, so nothing is signed")
    if configuration.signing_key is None:
        if not configuration.trusted_keys:
            return skipped("none: results are sent unsigned")
        if _accepts_unsigned(configuration):
            where = f"the namespace {configuration.namespace}"
            return ok(f"none: results go unsigned to {where}, where this machine accepts unsigned results")
        return warning(
            "results are sent unsigned, so machines that trust keys, like this one, do not accept them",
            "set signing_key in the user's settings, or MLCBUILD_REMOTE_SIGNING_KEY",
        )
    key = Digest(os.urandom(32).hex(), 100)
    result = ActionResult(execution_metadata=ExecutedActionMetadata(worker="mlcbuild doctor"))
    try:
        line = configuration.signing_key.public.line
    except CacheError as error:
        return wrong_setting(error.message, *error.advice) if _is_installed() else of_error(error)
    signed = open_signatures(configuration).sign(key, result)
    others = Signatures(trusted_keys=configuration.trusted_keys, salt=configuration.salt)
    reason = others.check(key, signed)
    if reason == UNKNOWN:
        return wrong_setting(
            f"results are signed by {line}, which is not one of the trusted keys",
            "add it to trusted_keys of the machines that read, or sign with another key",
        )
    if reason:
        return failed(f"a result that was just signed is {reason}", "install cryptography again")
    other = Digest(os.urandom(32).hex(), 100)
    if configuration.trusted_keys and not others.check(other, signed):
        return failed("a signature is accepted for another action", "install cryptography again")
    by = f"signs as {line}"
    return ok(f"{by}, which is trusted" if configuration.trusted_keys else f"{by}; no keys are trusted here")


def _accepts_unsigned(configuration: RemoteConfiguration) -> bool:
    """Whether this machine accepts unsigned results in the namespace that it sends to."""
    return bool(configuration.namespace and configuration.unsigned_in_namespace)


def _is_installed() -> bool:
    return importlib.util.find_spec("cryptography") is not None
