"""Print the requirements of jestlab that a machine with PyTorch and JAX lacks, in the versions of the lock.

`make gpu-wheels` downloads them. The machine is assumed to have `THERE` and its dependencies. Run this in
jestlab's development environment, which has the metadata of every package.
"""

import argparse
import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]

THERE = (
    *("click", "filelock", "flax", "fsspec", "jax", "jinja2", "matplotlib", "numpy", "optax"),
    *("orbax-checkpoint", "pandas", "pillow", "protobuf", "psutil", "pyarrow", "pyyaml", "regex", "rich"),
    *("safetensors", "scipy", "sentencepiece", "tensorboard", "timm", "tokenizers", "torch"),
)
"""Packages of typical images with PyTorch and JAX."""


def needed(names: Iterable[str], markers: dict[str, str]) -> set[str]:
    """Return packages and their dependencies, according to the metadata in this environment."""
    found: set[str] = set()
    left = [Requirement(name) for name in names]
    while left:
        requirement = left.pop()
        extras = requirement.extras or {""}
        key = canonicalize_name(requirement.name)
        if key in found and not requirement.extras:
            continue
        found.add(key)
        try:
            lines = requires(key) or []
        except PackageNotFoundError:  # such as PyTorch, which isn't in the lock
            continue
        for each in map(Requirement, lines):
            marker = each.marker
            if marker is None or any(marker.evaluate(markers | {"extra": extra}) for extra in extras):
                left.append(each)
    return found


def locked(names: set[str], markers: dict[str, str]) -> list[str]:
    """Return the lock's lines about packages, with versions and hashes, for one platform."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = []
    for line in text.splitlines():
        match = re.match(r"([A-Za-z0-9._-]+)==(\S+)\s*(?:;([^\\]*?))?((?:\s+--hash=\S+)+)", line)
        if match is None or canonicalize_name(match[1]) not in names:
            continue
        if match[3] is None or Marker(match[3].strip()).evaluate(markers):
            lines.append(f"{match[1]}=={match[2]} {' '.join(match[4].split())}")
    return lines


def main() -> None:
    """Print the requirements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="3.12", help="version of Python on the machine")
    parser.add_argument("--machine", default="x86_64", help="its processor: x86_64 or aarch64")
    options = parser.parse_args()
    markers = {
        "python_version": options.python,
        "python_full_version": f"{options.python}.0",
        "platform_machine": options.machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    jax = [line for line in project["optional-dependencies"]["jax"] if "jestlab" not in line]
    missing = needed([*project["dependencies"], *jax], markers) - needed(THERE, markers)
    print("\n".join(locked(missing, markers)))


if __name__ == "__main__":
    main()
