"""Whether a file is on a network file system, where SQLite's locks are not safe."""

from __future__ import annotations

from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")
_NETWORK = (
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "cifs", "smb3", "smbfs", "ceph", "afs"),
    *("glusterfs", "panfs", "orangefs", "ocfs2", "gfs2", "wekafs", "pvfs2", "vastfs", "quobyte", "daos"),
)


def network_file_system(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the kind of network file system that a path is on; None on a disk of this machine.

    Args:
        path: May not exist yet.
        mounts: What the kernel says is mounted where.
    """
    place, best, kind = path.absolute(), -1, ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        where = Path(fields[1].encode().decode("unicode_escape", errors="replace"))
        if place.is_relative_to(where) and len(where.parts) >= best:
            best, kind = len(where.parts), fields[2]
    kind = kind.removeprefix("fuse.")
    return kind if kind in _NETWORK or kind in ("sshfs", "s3fs", "gcsfuse") else None
