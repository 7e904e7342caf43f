"""A study with a custom script in a separate folder, which is changed between launches."""

from pathlib import Path
from typing import Any

import yaml

SCRIPT = """
import json, os
from noise import NOISE
seed = int(os.environ["JESTLAB_SEED"])
value = 0.5 + NOISE * seed / 10
with open(os.environ["JESTLAB_REPORTS"], "w") as reports:
    reports.write(json.dumps({"type": "evaluation", "step": 1, "scores": {"toy/score": value}}) + chr(10))
    reports.write(json.dumps({"type": "log", "step": 1, "metrics": {"loss": value}}) + chr(10))
"""


def write(folder: Path, noise: float = 0.1, **parts: Any) -> Path:
    """Write the study and its script, with this much noise, into a folder, and return the spec."""
    folder.mkdir(exist_ok=True)
    (folder / "ridge.py").write_text(SCRIPT)
    change(folder, noise)
    study = {
        "name": "ridge",
        "program": "command",
        "base": {"command": ["python", "ridge.py"], "cwd": str(folder)},
        "runs": {"plain": {"width": 1}, "wide": {"width": 2}},
        "seeds": 3,
        "resources": {"retries": 0},
    }
    path = folder / "ridge.yaml"
    path.write_text(yaml.safe_dump(study | parts))
    return path


def change(folder: Path, noise: float) -> None:
    """Change the module that the script imports."""
    (folder / "noise.py").write_text(f"NOISE = {noise}\n")
