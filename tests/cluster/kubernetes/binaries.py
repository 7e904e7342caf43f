"""Where `make cluster` keeps the programs of Kubernetes and of Kueue, and why they may be missing."""

import subprocess
from pathlib import Path

_BUILD = Path(__file__).with_name("build.sh")

MISSING = "there is no Kubernetes here (make cluster)"
"""Why tests of Kubernetes are skipped."""
KUEUE_MISSING = "there is no Kubernetes with Kueue here (make cluster)"
"""Why tests of Kueue are skipped."""


def folder(*part: str) -> Path | None:
    """Return the folder of the control plane's programs, or of `kueue`; None if they are not built."""
    said = subprocess.run([_BUILD, "--where", *part], capture_output=True, text=True, check=True)
    found = Path(said.stdout.strip())
    return found if (found / "ready").exists() else None
