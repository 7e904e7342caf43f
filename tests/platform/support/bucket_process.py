"""The emulator of Google Cloud Storage, made to be killed: what it writes is there whole, or not at all."""

import threading
from pathlib import Path
from typing import Any

from gcp_storage_emulator import __main__, storage

Files: Any = storage._FileStore
write_in_place = Files.write_bytes


def write(files: Any, name: str, content: bytes) -> None:
    """As the real store does; the emulator, killed while it wrote its index, could not start again."""
    beside = f"{name}.{threading.get_ident()}"
    write_in_place(files, beside, content)
    written: Path = files._disk_path(beside)
    written.replace(files._disk_path(name))


Files.write_bytes = write
__main__.main()
