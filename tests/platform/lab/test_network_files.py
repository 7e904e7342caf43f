"""Whether a file is on a network file system."""

from pathlib import Path

from jestlab.platform.lab.network_files import network_file_system

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/ada/local\\040disk xfs rw 0 0
scratch@tcp:/s /scratch lustre rw 0 0
bucket /mnt/bucket fuse.s3fs rw 0 0
broken
"""


def test_the_innermost_mount_determines_the_file_system(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    expected = {
        "/home/ada/lab/results.db": "nfs4",
        "/home/ada/local disk/lab/results.db": None,
        "/homework/results.db": None,
        "/scratch/lab": "lustre",
        "/mnt/bucket/lab": "s3fs",
        "/tmp/lab": None,
    }
    assert {path: network_file_system(Path(path), mounts) for path in expected} == expected
    assert network_file_system(tmp_path, tmp_path / "none") is None
