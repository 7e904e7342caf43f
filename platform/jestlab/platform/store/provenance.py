"""What code ran where: enough to run it again, gathered without importing what it describes."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from jestlab.platform.store import environment

PATCH_BYTES = 200_000
"""Longest patch kept; beyond it only its beginning is."""

_PACKAGES = (
    "jestlab",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "grain",
    "numpy",
    "sentencepiece",
    "sqlalchemy",
    "xmanager",
)


@dataclass(frozen=True)
class Provenance:
    """Of one attempt.

    Attributes:
        host: Name of the machine.
        device: What it computes on, in words.
        versions: Package → version, of those installed, and of Python.
        git_commit: Commit of the checkout that holds the code; None without one.
        git_patch: What that commit lacks; None when nothing does.
        environment: Variables that may matter, without secrets.
    """

    host: str
    device: str
    versions: dict[str, str]
    git_commit: str | None
    git_patch: str | None
    environment: dict[str, str] = field(default_factory=dict)


def collect(code: Path) -> Provenance:
    """Gather the provenance of this process.

    Args:
        code: A folder of the code that runs.
    """
    commit = _git(code, "rev-parse", "HEAD")
    return Provenance(
        host=socket.gethostname(),
        device=device(),
        versions=_versions(),
        git_commit=commit.strip() if commit else None,
        git_patch=_patch(code) if commit else None,
        environment=environment.kept(os.environ),
    )


def device() -> str:
    """The accelerators JAX is using in this process, or the processor if it has not been loaded."""
    jax = sys.modules.get("jax")
    if jax is not None and jax.default_backend() != "cpu":
        devices = jax.devices()
        return f"{len(devices)} × {devices[0].device_kind}"
    return f"{os.cpu_count()} cores {platform.machine()}"


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # an optional one, or a checkout that was never installed
    return versions


def _patch(code: Path) -> str | None:
    patch = _git(code, "diff", "HEAD", "--no-ext-diff", "--no-color")
    if not patch:
        return None
    for value in environment.secrets(os.environ):
        patch = patch.replace(value, "***")
    patch = environment.without_url_credentials(patch)
    if len(patch) > PATCH_BYTES:
        return f"{patch[:PATCH_BYTES]}\n[{len(patch) - PATCH_BYTES} more characters left out]\n"
    return patch


def _git(folder: Path, *arguments: str) -> str | None:
    """Standard output of git; None where there is no git, no checkout, or no answer in time."""
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.decode(errors="replace").replace("\0", "") if result.returncode == 0 else None
