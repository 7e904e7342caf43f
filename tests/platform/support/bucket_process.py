"""The emulator of Google Cloud Storage, which may be killed at any moment: what it writes is there whole, or not."""

import os
import threading
from pathlib import Path
from typing import Any

from gcp_storage_emulator import __main__, storage

Files: Any = storage._FileStore
write_in_place = Files.write_bytes


def write(files: Any, name: str, content: bytes) -> None:
    """As the real store does, and the emulator does not: one that was killed could not read its index again."""
    beside = f"{name}.{threading.get_ident()}"
    write_in_place(files, beside, content)
    place: Path = files._disk_path(name)
    os.replace(files._disk_path(beside), place)


Files.write_bytes = write
__main__.main()
