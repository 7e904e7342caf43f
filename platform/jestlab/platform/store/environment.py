"""Environment variables that may matter to a result, without secrets.

Kept is what an allowlist of names admits and a denylist of words in names does not refuse. Of what is kept,
credentials in URLs are taken out, and so is every value of a variable that was refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from jestlab.platform.secrets import STORE

_PREFIXES = (
    "JAX_",
    "XLA_",
    "TPU_",
    "LIBTPU_",
    "CLOUD_TPU_",
    "MEGASCALE_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "ROCM_",
    "HIP_",
    "TF_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "MALLOC_",
    "PYTHON",
    "JESTLAB_",
)
_NAMES = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV"})

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|AUTH|PRIVATE|COOKIE|SIGNATURE|SAS", re.IGNORECASE)

# Up to the last @ of a word: a password may have an @ or a / of its own.
_IN_URL = re.compile(r"://[^\s\"']*@")
_PASSWORD = re.compile(r"://[^\s:@/]*:(\S+)@|password=([^&\s]+)", re.IGNORECASE)
# What stands after a name that speaks of a secret; the name's beginning does not matter.
_IN_OPTION = re.compile(
    rf"((?:{_SECRET.pattern})[\w.\-]{{0,40}}[ \"']{{0,2}}[=:][ ]?)(\"[^\"]*\"|'[^']*'|[^\s&;,]+)",
    re.IGNORECASE,
)

_SHORTEST = 6
"""Shorter values of secrets are found in too much that is none."""

_LONGEST = 4_000


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to keep, by name."""
    hidden = secrets(environment)
    return {
        name: _shortened(without(value, hidden))
        for name, value in sorted(environment.items())
        if _is_admitted(name)
    }


def secrets(environment: Mapping[str, str]) -> list[str]:
    """Values of variables whose names speak of secrets, and the store's password; the longest first."""
    values = {value for name, value in environment.items() if _SECRET.search(name)}
    for found in _PASSWORD.findall(environment.get(STORE, "")):
        password = "".join(found)
        values |= {password, unquote(password)}
    return sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)


def without(text: str, hidden: Iterable[str]) -> str:
    """A text with `***` instead of credentials in URLs and options, and instead of these values."""
    for value in hidden:
        text = text.replace(value, "***")
    text = without_url_credentials(text)
    return _IN_OPTION.sub(r"\1***", text)


def without_url_credentials(text: str) -> str:
    """A text with `***` instead of what stands before the @ of its URLs."""
    return _IN_URL.sub("://***@", text)


def _is_admitted(name: str) -> bool:
    return (name in _NAMES or name.startswith(_PREFIXES)) and not _SECRET.search(name)


def _shortened(value: str) -> str:
    """As text that every database takes: bytes that are no UTF-8 become question marks."""
    text = value.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
