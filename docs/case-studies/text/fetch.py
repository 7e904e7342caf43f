"""Fetch text that Debian packages ship: manual pages (curated) and a web of changelogs with some pages.

    python fetch.py [FOLDER]    (default: data)

Packages are downloaded by `apt-get download` and unpacked by `dpkg-deb -x`: any user can do so, and nothing
is installed. `groff` renders manual pages to plain text. Every page or changelog is one document, and belongs
to one split. It takes about 30 MB of downloads and two minutes.

    pages.SPLIT.bin        pages of PAGES: training data of the reference, and the test of all runs
    web-pages.train.bin    pages of other packages: the share PAGES_SHARE of the web
    web-changelogs.train.bin, changelogs.{val,test}.bin    changelogs: the rest of the web
    packages.txt           the version of each package
"""

import gzip
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The names of packages, separated by spaces.
PAGES = "manpages manpages-dev coreutils bash git-man util-linux"
WEB_PAGES = "openssh-client tar findutils curl gpg apt dpkg procps iproute2 e2fsprogs passwd man-db"
CHANGELOGS = (
    "apt dpkg man-db openssh-client curl procps e2fsprogs passwd iproute2 libc-bin perl-base debconf cron "
    "adduser base-files grep sed gzip login sudo less nano rsync wget lsof mawk ca-certificates"
)

RENDER = ["groff", "-mandoc", "-t", "-Kutf8", "-Tascii", "-P-cbou", "-rHY=0", "-dAD=l", "-rLL=78n", "-rcR=1"]
"""Plain text (no bold, underline, or overstrike), left-aligned, without hyphens, and as one long page."""

PAGES_SHARE = 0.25
"""The share of manual pages in the bytes of the web."""

LARGEST = 200_000
"""Bytes that are kept of a document, so that no changelog dominates."""

TOOLS = {"apt-get": "apt", "dpkg-deb": "dpkg", "groff": "groff-base"}


def main(folder: Path) -> None:
    """Download, unpack, render, split, and write."""
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            sys.exit(f"fetch.py needs {tool}, of the Debian package {package}, and it isn't installed")
    unpacked = download(sorted({*f"{PAGES} {WEB_PAGES} {CHANGELOGS}".split()}), folder / "packages")
    pages, web_pages = (split(pages_of(unpacked, names)) for names in (PAGES, WEB_PAGES))
    changelogs = split(changelogs_of(unpacked, CHANGELOGS))
    for name in ("train", "val", "test"):
        (folder / f"pages.{name}.bin").write_bytes(pages[name])
    for name in ("val", "test"):
        (folder / f"changelogs.{name}.bin").write_bytes(changelogs[name])
    # All splits of the other packages' pages: they are disjoint from PAGES.
    some = b"".join(web_pages.values())
    rest = changelogs["train"]
    size = min(len(rest) / (1 - PAGES_SHARE), len(some) / PAGES_SHARE)
    (folder / "web-pages.train.bin").write_bytes(some[: int(size * PAGES_SHARE)])
    (folder / "web-changelogs.train.bin").write_bytes(rest[: int(size * (1 - PAGES_SHARE))])
    for file in sorted(folder.glob("*.bin")):
        print(f"{file.stat().st_size:>12,} bytes  {file.name}")


def download(names: list[str], folder: Path) -> dict[str, Path]:
    """Download and unpack packages; return the folder of each, and record the versions."""
    folder.mkdir(parents=True, exist_ok=True)
    got = subprocess.run(["apt-get", "-q", "download", *names], cwd=folder, capture_output=True, text=True)
    if got.returncode:
        reason = (got.stderr.strip() or "no reason given").splitlines()[-1]
        sys.exit(f"apt-get can't download the packages ({reason}); try `apt-get update`")
    unpacked, versions = {}, []
    for name in names:
        # The newest file, if an earlier fetch left an older version.
        file = max(folder.glob(f"{name}_*.deb"), key=lambda file: file.stat().st_mtime)
        fields = subprocess.check_output(["dpkg-deb", "-f", file, "Package", "Version"], text=True)
        versions.append(" ".join(line.partition(": ")[2] for line in fields.splitlines()))
        unpacked[name] = folder / name
        subprocess.run(["dpkg-deb", "-x", file, unpacked[name]], check=True)
    (folder.parent / "packages.txt").write_text("\n".join(versions) + "\n")
    return unpacked


def pages_of(unpacked: dict[str, Path], names: str) -> dict[str, bytes]:
    """Render the English manual pages of packages; return the text by package and file."""
    files = {
        f"{name}/{file.name}": file
        for name in names.split()
        for file in sorted((unpacked[name] / "usr/share/man").glob("man*/*.gz"))
        if not file.is_symlink()
    }
    with ThreadPoolExecutor(2) as threads:  # each waits for a groff
        texts = list(threads.map(render, files.values()))
    return {name: text for name, text in zip(files, texts, strict=True) if len(text) > 1_000}


def render(file: Path) -> bytes:
    """Return a manual page as plain text; empty if it names another page."""
    source = gzip.decompress(file.read_bytes())
    if source.startswith(b".so "):
        return b""
    text = subprocess.run(RENDER, input=source, capture_output=True, check=False).stdout
    return re.sub(rb"\n{3,}", b"\n\n", text)


def changelogs_of(unpacked: dict[str, Path], names: str) -> dict[str, bytes]:
    """Return the changelogs of packages by package and file; each content once."""
    found: dict[bytes, str] = {}
    for name in names.split():
        for file in sorted((unpacked[name] / "usr/share/doc").glob("*/[Cc]hange[Ll]og*.gz")):
            if not file.is_symlink():
                found.setdefault(gzip.decompress(file.read_bytes()), f"{name}/{file.name}")
    return {name: text for text, name in found.items()}


def split(documents: dict[str, bytes]) -> dict[str, bytes]:
    """Join documents, in the order of the digests of their names: 80% train, 10% val, 10% test."""
    ordered = sorted(documents, key=lambda name: hashlib.sha256(name.encode()).digest())
    held_out = max(1, len(ordered) // 10)
    bounds = {"val": (0, held_out), "test": (held_out, 2 * held_out), "train": (2 * held_out, None)}

    def texts(first: int, last: int | None) -> Iterator[bytes]:
        for name in ordered[first:last]:
            yield documents[name][:LARGEST] + b"\n"

    return {name: b"".join(texts(*bound)) for name, bound in bounds.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
