"""The container that cluster jobs run, built here without docker and without a registry.

    python tests/cluster/image.py       # `make cluster-image`: minutes the first time

All that is built lies outside the checkout, and is built again when what it is built from has changed; the
layers of dependencies are kept. Jobs run from inside the image's files by chroot, as user 1000:
`Built.command`.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
NEEDS = ("buildah", "debootstrap", "unshare")
MISSING = "there is no image here (make cluster-image)"
"""Why tests of the container are skipped."""

TORCH = (
    "torch",
    "torchgen",
    "functorch",
    "nvidia",
    "triton",
    "cuda",
    "sympy",
    "mpmath",
    "networkx",
    "fsspec",
)
"""Folders of packages that PyTorch consists of and imports."""

_SCRIPT = Path(__file__).with_name("image.sh")


class NoImage(Exception):
    """There is no image, and none can be built here; the message says why."""


@dataclass(frozen=True)
class Built:
    """An image that was built here.

    Attributes:
        digest: `NAME@sha256:…`, as `resources.image` wants it.
        tree: Folder of its files. They must not be changed.
        environment: Variables that it sets.
        entrypoint: Command that it starts.
    """

    digest: str
    tree: Path
    environment: dict[str, str]
    entrypoint: list[str]

    def command(
        self, words: Sequence[str], environment: Mapping[str, str], mounts: Mapping[Path, str] | None = None
    ) -> list[str]:
        """Return a command that runs another inside the image's files, as user 1000 and without this
        machine's variables.

        Root can execute it. The process that it starts becomes the command itself: signals reach it, and its
        exit code is the command's. Its mounts (folder of this machine → absolute path inside) are seen by
        nobody else and end with it.
        """
        lines = ["set -eu", f"cd {shlex.quote(str(self.tree))}"]
        # Mount points are made on a layer above the image's files, which goes away with the mounts.
        lines += [
            "mount -t tmpfs none mnt",
            "mkdir mnt/upper mnt/work mnt/merged",
            "mount -t overlay none -o lowerdir=.,upperdir=mnt/upper,workdir=mnt/work mnt/merged",
            "cd mnt/merged",
            "mount -t proc proc proc",
            "mount --rbind /dev dev",
            "cp /etc/hosts /etc/resolv.conf etc/",
        ]
        for outside, inside in (mounts or {}).items():
            place = shlex.quote("." + inside)
            lines += [f"mkdir -p {place}", f"mount --rbind {shlex.quote(str(outside))} {place}"]
        variables = {"HOME": "/home/jestlab", **self.environment, **environment}
        entered = ["chroot", "--userspec=1000:1000", ".", "env", "-i"]
        entered += [f"{name}={value}" for name, value in variables.items()]
        lines.append(f"exec {shlex.join([*entered, *words])}")
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(lines)]


def image() -> Built:
    """Return the image of this checkout, built again if what it is built from has changed.

    Raises:
        NoImage: It cannot be built here, or was never: `make cluster-image` builds the first one.
    """
    if not (_folder() / "made").exists():
        raise NoImage(MISSING)
    return build()


def image_for_commands() -> Built:
    """Return the image of docs/how-to/container.md for PyTorch commands, without PyTorch.

    Its wheels take gigabytes. Mount the packages of this checkout: see `TORCH`.

    Raises:
        NoImage: As for `image`.
    """
    if not (_folder() / "made").exists():
        raise NoImage(MISSING)
    page = (ROOT / "docs" / "how-to" / "container.md").read_text(encoding="utf-8")
    recipe = re.search(r"```dockerfile\n(.*?)```", page, re.DOTALL)
    assert recipe is not None
    with tempfile.TemporaryDirectory() as source:
        Path(source, "torch.Dockerfile").write_text(recipe[1])
        words = ["-m", "hatchling", "build", "--target", "wheel", "--directory", f"{source}/dist"]
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
        return build("commands", _digest_of_inputs() + recipe[1], Path(source), "torch.Dockerfile")


def build(kind: str = "", wanted: str | None = None, source: Path = ROOT, *recipe: str) -> Built:
    """Build the image of this checkout, unless it is there; whoever else builds one is waited for.

    Args:
        kind: Part of the name of another image than the worker's.
        wanted: Text that changes with what the image is built from; None for the worker's.
        source: Folder that it is built in.
        recipe: Its Dockerfile in that folder; none for the worker's.

    Raises:
        NoImage: A program is missing, or the user is not root.
        subprocess.CalledProcessError: The build failed.
    """
    if lacking := [name for name in NEEDS if shutil.which(name) is None]:
        raise NoImage(f"building the image needs {', '.join(lacking)}: {MISSING}")
    if os.geteuid() != 0:
        raise NoImage(f"building the image without docker needs root: {MISSING}")
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    # Checkouts share the layers of dependencies; each has one tree, so that editing does not fill the disk.
    name = f"jestlab{kind}-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]}"
    made = folder / name
    wanted = _digest_of_inputs() if wanted is None else wanted
    with FileLock(folder / "lock"):
        if not (made / "inputs").exists() or (made / "inputs").read_text() != wanted:
            own_mounts = ["unshare", "--mount", "--propagation", "private"]
            command: list[str | Path] = [*own_mounts, _SCRIPT, folder, source, name, *recipe]
            environment = {**os.environ, "TORCH": "numpy"}  # instead of PyTorch
            subprocess.run(command, stdin=subprocess.DEVNULL, check=True, env=environment)
            (made / "inputs").write_text(wanted)
            (folder / "made").touch()
    inspected: dict[str, Any] = json.loads((made / "inspected.json").read_text())
    config = inspected["OCIv1"]["config"]
    return Built(
        digest=f"localhost/{name}@{(made / 'digest').read_text().strip()}",
        tree=made / "tree",
        environment=dict(variable.split("=", 1) for variable in config["Env"]),
        entrypoint=config["Entrypoint"],
    )


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "jestlab-cluster" / "image"


def _inputs() -> Iterator[Path]:
    """List the files that the image is built from: the recipe, and what .dockerignore lets through."""
    yield from (_SCRIPT, ROOT / "Dockerfile", ROOT / ".dockerignore")
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!"):
            place = ROOT / line[1:]
            found = sorted(place.rglob("*")) if place.is_dir() else [place]
            yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)


def _digest_of_inputs() -> str:
    digest = hashlib.sha256()
    for path in _inputs():
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def main() -> int:
    try:
        built = build()
    except NoImage as error:
        print(f"make cluster-image: {error}")
        return 0
    except subprocess.CalledProcessError as error:
        print(f"make cluster-image: the build failed with exit code {error.returncode}; see above")
        return 1
    print(f"{built.digest}\n{built.tree}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
