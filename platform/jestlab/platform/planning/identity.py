"""Identities of runs: how a fingerprint is computed, and whether a stored run has the one that it claims."""

from __future__ import annotations

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
    """Write JSON with sorted keys and no spaces, floats as Python prints them (the shortest exact form).

    Raises:
        ValueError: A number is not finite.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(program: str, version: int, identity: Mapping[str, Any], needs: Mapping[str, str]) -> str:
    """Compute a run's identity: two runs with equal fingerprints are one run.

    Args:
        program: What the run executes.
        version: Of the program: raised when the same config comes to mean something else.
        identity: What in the config decides the result, without fields at their default.
        needs: Role → fingerprint of each run that it needs. What those runs are called does not matter.
    """
    whole = {"program": program, "version": version, "identity": identity, "needs": needs}
    return hashlib.sha256(canonical_json(whole).encode()).hexdigest()


def identity_of(program: Program, config: Config) -> dict[str, Any]:
    """Return what of a run's config is part of its identity; the fingerprints of needed runs stand in for
    their names."""
    identity = program.identity(config)
    for path in marked(program.schema, NAMES_A_RUN) if program.schema is not None else ():
        identity = without(identity, path)
    return identity


def folder_end(fingerprint: str) -> str:
    """Return the end of the name of a run's folder: enough digits that no two runs share a folder."""
    return f"-{fingerprint[:16]}"


def of_origin(origin: str) -> str:
    """Compute the identity of a run that another tool has recorded: where it came from."""
    return fingerprint(ADOPTED, 1, {ADOPTED_FROM: origin}, {})


def is_true(claimed: str, program: str, config: Mapping[str, Any], needs: Mapping[str, str]) -> bool:
    """Whether a fingerprint is that of a run. Nothing that the run names is looked for, imported or executed.

    A user's callable needs no look at it: its name, without the folder of its file, and the whole config are
    the identity, and the code is not. jestlab's own programs may have had the run under an older version,
    with the same identity.

    Args:
        claimed: The fingerprint.
        program: Name of the program.
        config: As stored: whole and resolved.
        needs: Role → fingerprint of each run that it needs.
    """
    if program == ADOPTED:
        return claimed == of_origin(str(config.get(ADOPTED_FROM)))
    own = BUILTIN.get(program)
    if own is None and not references.is_reference(program):
        return False
    try:
        if own is None:
            return claimed == fingerprint(references.without_folder(program), 1, config, needs)
        identity = identity_of(own, own.read(config))
        versions = range(own.version, 0, -1)
        return any(claimed == fingerprint(own.name, version, identity, needs) for version in versions)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):  # no config of that program
        return False
