"""Fingerprints: the identities of runs, and the check that a stored fingerprint is authentic."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jestlab.models.extensions import references
from jestlab.platform.programs import BUILTIN, Config, Program
from jestlab.platform.spec.fields import NAMES_A_RUN, marked
from jestlab.platform.spec.tree import without
from jestlab.platform.store.records import ADOPTED, ADOPTED_FROM


def canonical_json(value: Any) -> str:
    """Write JSON with sorted keys and no spaces; floats in Python's shortest exact form.

    Raises:
        ValueError: A number isn't finite.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(program: str, version: int, identity: Mapping[str, Any], needs: Mapping[str, str]) -> str:
    """Compute a run's fingerprint. Runs with equal fingerprints are the same run.

    Args:
        program: Name of the program; the folder of its file doesn't matter.
        version: Version of the program.
        identity: Part of the config that determines the result, without fields at their default.
        needs: Role → fingerprint of the dependency. The names of dependencies don't matter.
    """
    name = references.without_folder(program)
    content = {"program": name, "version": version, "identity": identity, "needs": needs}
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def identity_of(program: Program, config: Config) -> dict[str, Any]:
    """Return the identity of a run's config, without the names of dependencies: `fingerprint` gets their
    fingerprints instead."""
    identity = program.identity(config)
    for path in marked(program.schema, NAMES_A_RUN):
        identity = without(identity, path)
    return identity


def folder_suffix(fingerprint: str) -> str:
    """Return the suffix of the name of a run's folder, which makes the name unique."""
    return f"-{fingerprint[:16]}"


def origin_fingerprint(origin: str) -> str:
    """Compute the fingerprint of a run imported from another tool, by its origin."""
    return fingerprint(ADOPTED, 1, {ADOPTED_FROM: origin}, {})


def is_authentic(claimed: str, program: str, config: Mapping[str, Any], needs: Mapping[str, str]) -> bool:
    """Check whether a fingerprint belongs to a config, without importing or executing custom code.

    The identity of a custom program is its name, without the folder of its file, and its whole config. For a
    built-in program, fingerprints of its earlier versions are valid, too.

    Args:
        claimed: The fingerprint.
        program: Name of the program.
        config: The whole, resolved config, as stored.
        needs: Role → fingerprint of the dependency.
    """
    if program == ADOPTED:
        return claimed == origin_fingerprint(str(config.get(ADOPTED_FROM)))
    builtin = BUILTIN.get(program)
    if builtin is None and not references.is_reference(program):
        return False
    try:
        if builtin is None:
            return claimed == fingerprint(program, 1, config, needs)
        identity = identity_of(builtin, builtin.read(config))
        versions = range(builtin.version, 0, -1)
        return any(claimed == fingerprint(builtin.name, version, identity, needs) for version in versions)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):  # not a config of the program
        return False
