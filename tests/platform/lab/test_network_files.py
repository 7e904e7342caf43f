"""Whether a file is on a network file system."""

from pathlib import Path

import pytest

from jestlab.platform.lab.network_files import network_file_system

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/ada/local\\040disk xfs rw 0 0
scratch@tcp:/s /scratch lustre rw 0 0
bucket /mnt/bucket fuse.s3fs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/ada/lab/results.db", "nfs4"),
        ("/home/ada/local disk/lab/results.db", None),
        ("/homework/results.db", None),
        ("/scratch/lab", "lustre"),
        ("/mnt/bucket/lab", "s3fs"),
        ("/tmp/lab", None),
    ],
)
def test_the_innermost_mount_decides(tmp_path, path, kind):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert network_file_system(Path(path), mounts) == kind


def test_a_machine_that_says_nothing(tmp_path):
    assert network_file_system(tmp_path, tmp_path / "none") is None
