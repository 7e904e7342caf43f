"""The provenance of an attempt: code, package versions, data, machine, and environment.

An environment variable is recorded if its name is on an allowlist and has no word that hints at a secret. In
recorded values, credentials in URLs are replaced, and so is the value of every variable with such a word.
Secrets are also left out of the text of files and of uncommitted changes.
"""

import inspect
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from sqlalchemy import select

from jestlab.analysis.provenance.checkout import Checkout, jestlab_version, output_of
from jestlab.analysis.provenance.code import DECISIVE, commit_text
from jestlab.models.processes import launched_with_others
from jestlab.platform.digests import digest_of
from jestlab.platform.redaction import PARTS, SECRET_NAME, without_secrets, without_values
from jestlab.platform.store.address import STORE
from jestlab.platform.store.rows import one_of, to_json, upsert
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import SourceRow
from jestlab.platform.whoami import host_name

RECORD = "JESTLAB_RECORD"
"""Environment variable of a worker: the parts to record, separated by commas; all parts without it."""

PATCH_BYTES = 200_000
"""Longer patches are cut off."""

MOST_FILE_BYTES = 256 * 1024
"""The text of larger files is not stored, only their digests."""

MOST_BYTES = 4 * 1024 * 1024
"""The same, for all files of one run together."""

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
# This filter ignores arguments of calls: it would miss the secret in `login("…")`.
_CALLS = "detect_secrets.filters.heuristic.is_indirect_reference"
_SCRIPTS = frozenset({".py", ".sh", ".bash", ".zsh", ".pl", ".rb", ".js", ".ts", ".jl", ".r", ".lua"})

_JAX = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain")
_PACKAGES = (*_JAX, "numpy", "sentencepiece", "sqlalchemy", "xmanager")


# ---- the user's code


def without_secret_lines(text: str) -> str:
    """Leave out private keys, and lines in which Yelp's detect-secrets finds a secret."""
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    text = _PRIVATE_KEY.sub("[a private key is left out]", text)
    with tempfile.TemporaryDirectory(prefix="jestlab-") as folder:
        file = Path(folder) / "patch.txt"
        file.write_text(text, encoding="utf-8")
        with default_settings() as settings:
            settings.disable_filters(_CALLS)
            secrets = {secret.line_number: secret.type for secret in scan_file(str(file))}
    lines = text.split("\n")
    for number, kind in secrets.items():
        lines[number - 1] = f"{lines[number - 1][:1]}[a line is left out, which may hold a secret: {kind}]"
    return "\n".join(lines)


def digests_of(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of each readable file by its name."""
    return {name: digest for name, file in files.items() if (digest := digest_of(file)) is not None}


def store_texts(store: Store, files: Iterable[Path], clean: Callable[[str], str]) -> None:
    """Store the text of scripts that the store does not have yet.

    Other files that a command names may be data or credentials: only their digests are recorded. `clean`
    replaces known secrets.
    """
    found = dict(script_texts(files))
    missing = found.keys() - texts(store, found).keys()
    rows = [
        {"sha256": digest, "text": without_secret_lines(clean(found[digest]))} for digest in sorted(missing)
    ]
    if rows:
        with store.writing() as connection:
            upsert(connection, SourceRow, rows)


def texts(store: Store, digests: Iterable[str]) -> dict[str, str]:
    """Return the text of files by their digests, if the store has them."""
    query = select(SourceRow.sha256, SourceRow.text).where(one_of(SourceRow.sha256, digests))
    return {row.sha256: row.text for row in store.rows(query)}


def script_texts(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield digest and text of scripts, within the limits of size."""
    left = MOST_BYTES
    for file in files:
        try:
            size = file.stat().st_size
            if size > min(MOST_FILE_BYTES, left):
                continue
            text = file.read_bytes().decode()
            digest = digest_of(file)
        except (OSError, UnicodeDecodeError):
            continue
        is_script = file.suffix.lower() in _SCRIPTS or text.startswith("#!")
        if is_script and digest is not None and "\0" not in text:
            left -= size
            yield digest, text


# ---- what an attempt records


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
        sources: Files of the user's code by path, the executed one first; None without any.
        packages: Packages whose versions may matter.
        interpreter: The Python of its command; None for the worker's own.
        files: Files and folders that it reads, by name.
    """

    sources: Mapping[str, Path] | None = None
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
    own = Checkout.of(code / "worker.py")
    users = None if sources is None else Checkout.around(next(iter(sources.values())))
    clean = cleaner()

    def patch(checkout: Checkout | None) -> str | None:
        """Return uncommitted changes without secrets, at most about `PATCH_BYTES`; None without any."""
        if checkout is None or "changes" not in parts or not (changes := checkout.changes()):
            return None
        changes = clean(changes)
        left_out = len(changes) - PATCH_BYTES
        changes = without_secret_lines(changes[:PATCH_BYTES])
        return changes if left_out <= 0 else f"{changes}\n[{left_out} more characters left out]\n"

    return Provenance(
        host=host_name(),
        device=device(),
        versions=versions(run.packages, run.interpreter),
        git_commit=own.commit if own else None,
        git_patch=patch(own),
        environment=kept_variables(os.environ) if "environment" in parts else {},
        code_commit=users.commit if users else None,
        code_patch=patch(users),
        sources=None if sources is None else digests_of(sources),
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
        listed.append(f"{len(kept_variables(os.environ))} environment variables (and jestlab's own)")
    if (checkout := Checkout.of(code / "worker.py")) is not None:
        has_changes = "changes" in parts and checkout.changes("--name-only")
        listed.append(f"jestlab's {commit_text(checkout.commit[:8], has_changes)}")
    if own_code:
        listed.append("custom code" if "sources" in parts else "digests of custom code")
    return f"each attempt records, without secrets: {', '.join(listed[:-1])}, and {listed[-1]}"


def device() -> str:
    """Return the accelerators that JAX uses in this process, or the processor if JAX is not loaded."""
    jax = sys.modules.get("jax")
    # NOTE: asking for the backend initializes JAX; processes that compute together have to connect before.
    may_ask = jax is not None and (jax.distributed.is_initialized() or not launched_with_others())
    if jax is not None and may_ask and jax.default_backend() != "cpu":
        devices = jax.devices()
        return f"{len(devices)} × {devices[0].device_kind}"
    return f"{os.cpu_count()} cores {platform.machine()}"


_ASK_SECONDS = 20.0


def versions(packages: Collection[str] = (), interpreter: str | None = None) -> dict[str, str]:
    """Return the versions of Python and of those packages that are installed.

    Args:
        packages: Packages in addition to jestlab's dependencies.
        interpreter: Another Python, which determines the versions of `packages` and `DECISIVE`; without an
            answer of it, they are unknown.
    """
    found = _installed([*_PACKAGES, *packages]) | {"jestlab": jestlab_version()}
    if interpreter is None:
        return found
    asked = (*DECISIVE, *packages)
    code = f"{inspect.getsource(_installed)}\nimport json, sys\nprint(json.dumps(_installed(sys.argv[1:])))"
    try:
        answer = json.loads(output_of([interpreter, "-c", code, *asked], _ASK_SECONDS) or "{}")
    except ValueError:
        answer = {}
    own = {name: version for name, version in found.items() if name not in asked}
    return own | {str(name): str(version) for name, version in answer.items()}


def _installed(packages: list[str]) -> dict[str, str]:
    """Return the versions of Python and of installed packages. Other interpreters execute this, too."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # optional, or a checkout that was never installed
            continue
    return found


# ---- the environment

_KEPT = re.compile(
    r"""(JAX|XLA|TPU|LIBTPU|CLOUD_TPU|MEGASCALE|CUDA|NVIDIA|NCCL|ROCM|HIP|OMP|MKL|OPENBLAS|MALLOC|JESTLAB)_
    | TF_ (?! CLI_ | VAR_ | PLUGIN_ | DATA_DIR | LOG | INPUT | WORKSPACE )  # TensorFlow's, not Terraform's
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
