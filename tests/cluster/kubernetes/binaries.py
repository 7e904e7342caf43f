"""Where `make cluster` keeps the programs of a Kubernetes control plane, and why they may be missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

_BUILD = Path(__file__).with_name("build.sh")

MISSING = "there is no Kubernetes here (make cluster)"
"""Why tests of Kubernetes are skipped."""


def folder() -> Path | None:
    """Return the folder of the programs; None where they have not been built."""
    said = subprocess.run([_BUILD, "--where"], capture_output=True, text=True, check=True)
    found = Path(said.stdout.strip())
    return found if (found / "ready").exists() else None
