"""The provenance of an attempt: code, package versions, data, machine, and environment.

An environment variable is recorded if its name is on an allowlist and has no word that hints at a secret. In
recorded values, credentials in URLs are replaced, and so is the value of every variable with such a word.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from jestlab.analysis.mixing import DECISIVE
from jestlab.models.processes import launched_with_others
from jestlab.platform.digests import digest_of
from jestlab.platform.redaction import PARTS, SECRET_NAME, without_secrets, without_values
from jestlab.platform.store.address import STORE
from jestlab.platform.store.code import Checkout, SourceFiles
from jestlab.platform.store.rows import to_json
from jestlab.platform.whoami import host_name
from jestlab.platform.words import counted

RECORD = "JESTLAB_RECORD"
"""Environment variable of a worker: the parts to record, separated by commas; all parts without it."""

_JAX = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain")
_PACKAGES = ("jestlab", *_JAX, "numpy", "sentencepiece", "sqlalchemy", "xmanager")


@dataclass(frozen=True)
class Provenance:
    """The provenance of one attempt.

    Attributes:
        host: Name of the machine.
        device: Accelerator or processor, in words.
        versions: Package → version, of installed packages and of Python.
        git_commit: Commit of jestlab's checkout; None if jestlab is installed otherwise.
        git_patch: Its uncommitted changes, without secrets; None without any.
        environment: Variables that may matter, without secrets.
        code_commit: Commit of the repository of the user's code; None without one.
        code_patch: Its uncommitted changes, without secrets; None without any.
        sources: Files of the user's code → SHA-256; None if unknown.
        inputs: Other files that the study records → SHA-256, None if missing; None without such files.
    """

    host: str
    device: str
    versions: dict[str, str]
    git_commit: str | None
    git_patch: str | None
    environment: dict[str, str] = field(default_factory=dict)
    code_commit: str | None = None
    code_patch: str | None = None
    sources: dict[str, str] | None = None
    inputs: dict[str, str | None] | None = None

    def columns(self) -> dict[str, Any]:
        """Return the columns of the attempt's row."""
        return {
            name: value if value is None or isinstance(value, str) else to_json(value)
            for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class RunDetails:
    """The part of the provenance that depends on the run.

    Attributes:
        sources: The user's code that it executes; None without any.
        packages: Packages whose versions may matter.
        interpreter: The Python of its command; None for the worker's own.
        files: Files and folders that it reads, by name.
    """

    sources: SourceFiles | None = None
    packages: Collection[str] = ()
    interpreter: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)


def collect(code: Path, parts: Collection[str] = PARTS, run: RunDetails | None = None) -> Provenance:
    """Collect the provenance of this process.

    Args:
        code: A folder of jestlab's code.
        parts: Some of `PARTS`.
        run: Details of the run.
    """
    run = run or RunDetails()
    sources = run.sources
    own = Checkout.of(code)
    users = None if sources is None else Checkout.around(next(iter(sources.files.values())))
    clean = cleaner()

    def patch(checkout: Checkout | None) -> str | None:
        return checkout.patch(clean) if checkout is not None and "changes" in parts else None

    return Provenance(
        host=host_name(),
        device=device(),
        versions=versions(run.packages, run.interpreter),
        git_commit=own.commit if own else None,
        git_patch=patch(own),
        environment=kept_variables(os.environ) if "environment" in parts else {},
        code_commit=users.commit if users else None,
        code_patch=patch(users),
        sources=None if sources is None else sources.digests(),
        inputs={name: digest_of(file) for name, file in run.files.items()} or None,
    )


def cleaner() -> Callable[[str], str]:
    """Return a function that replaces the secrets of this process's environment by `***`."""
    hidden = secret_values(os.environ)
    return lambda text: without_values(text, hidden)


def recorded_parts() -> Collection[str]:
    """Return the parts that this worker records."""
    parts = os.environ.get(RECORD)
    return PARTS if parts is None else parts.split(",")


def announcement(code: Path, parts: Collection[str], own_code: bool) -> str:
    """Describe in one line what `collect` will record; `own_code`: whether custom programs run."""
    listed = ["host", "device", "package versions"]
    if "environment" in parts:
        listed.append(f"{len(kept_variables(os.environ))} environment variables without secrets")
    if (checkout := Checkout.of(code)) is not None:
        listed.append(f"jestlab's commit {checkout.commit[:8]}")
        if "changes" in parts and (changed := checkout.changed()):
            listed.append(f"its uncommitted changes ({counted(len(changed), 'file')}, without secrets)")
    if own_code:
        text = ", with their text without secrets" if "sources" in parts else ""
        listed.append(f"digests of custom code{text}")
    return f"recorded of each attempt: {', '.join(listed[:-1])} and {listed[-1]}"


def device() -> str:
    """Return the accelerators that JAX uses in this process, or the processor if JAX is not loaded."""
    jax = sys.modules.get("jax")
    # NOTE: asking for the backend initializes JAX; processes that compute together have to connect before.
    may_ask = jax is not None and (jax.distributed.is_initialized() or not launched_with_others())
    if jax is not None and may_ask and jax.default_backend() != "cpu":
        devices = jax.devices()
        return f"{len(devices)} × {devices[0].device_kind}"
    return f"{os.cpu_count()} cores {platform.machine()}"


_ASK = """
import json, platform, sys
from importlib import metadata
found = {"python": platform.python_version()}
for package in sys.argv[1:]:
    try:
        found[package] = metadata.version(package)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_ASK_SECONDS = 20.0


def versions(packages: Collection[str] = (), interpreter: str | None = None) -> dict[str, str]:
    """Return the versions of Python and of those packages that are installed.

    Args:
        packages: Packages in addition to jestlab's dependencies.
        interpreter: Another Python, which determines the versions of `packages` and `DECISIVE`.
    """
    found = {"python": platform.python_version()}
    for package in dict.fromkeys((*_PACKAGES, *packages)):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # optional, or a checkout that was never installed
    if interpreter is None:
        return found
    asked = (*DECISIVE, *packages)
    own = {name: version for name, version in found.items() if name not in asked}
    return own | _versions_in(interpreter, asked)


def _versions_in(interpreter: str, packages: Collection[str]) -> dict[str, str]:
    """Ask another Python for its version and those of packages; empty if it does not answer."""
    try:
        done = subprocess.run(
            [interpreter, "-c", _ASK, *packages],
            capture_output=True,
            timeout=_ASK_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return {}
    return {str(name): str(version) for name, version in found.items()}


# ---- the environment

_KEPT = re.compile(
    r"""(JAX|XLA|TPU|LIBTPU|CLOUD_TPU|MEGASCALE|CUDA|NVIDIA|NCCL|ROCM|HIP|TF|OMP|MKL|OPENBLAS|MALLOC|JESTLAB)_
    | PYTHON | (LD_LIBRARY_PATH | LD_PRELOAD | LANG | LC_ALL | TZ | VIRTUAL_ENV)$""",
    re.VERBOSE,
)
_PASSWORD = re.compile(r"://[^\s:@/]*:(\S+)@|password=([^&\s]+)", re.IGNORECASE)
_SHORTEST = 6  # shorter secrets also occur in ordinary text
_LONGEST = 4_000


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to record, by name."""
    hidden = secret_values(environment)
    kept = {}
    for name, value in sorted(environment.items()):
        if _KEPT.match(name) and not SECRET_NAME.search(name):
            # Every database accepts this text: bytes that are not valid UTF-8 become question marks.
            text = without_secrets(value, hidden).encode(errors="replace").decode()
            kept[name] = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return kept


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """Return the values of variables that may be secrets, and the store's password; the longest first."""
    values = {value for name, value in environment.items() if SECRET_NAME.search(name)}
    for found in _PASSWORD.findall(environment.get(STORE, "")):
        password = "".join(found)
        values |= {password, unquote(password)}
    return sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)
