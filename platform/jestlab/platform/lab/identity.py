"""Which lab this is: a file in its root says so, made once, which moves with it.

A lab in a bucket has the id that its URL gives it, so that a launcher needs no access to the bucket.

Labs with roots of their own may share a store. What a run left is below the root of the lab that made it, so
that the store has to know which that is.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from typing import NamedTuple

from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.whoami import host_name

NAME = "lab.id"


class LabId(NamedTuple):
    """A lab as the store knows it.

    Attributes:
        uid: Its id, 32 hexadecimal digits.
        address: Where it is now: a folder, or the URL of a bucket's.
        host: The machine of a folder; None of a bucket.
    """

    uid: str
    address: str
    host: str | None

    @property
    def place(self) -> str:
        """Where it is, in words: `atlas:/data/lab`."""
        return self.address if self.host is None else f"{self.host}:{self.address}"


def identify(lab: Lab) -> LabId:
    """Return which lab this is; it gets its id now if it has none.

    Raises:
        UserError: The file holds no id, or cannot be written.
        StoreUnreachable: The lab is not there now.
    """
    if (found := known(lab)) is not None:
        return found
    unfinished = lab.root / f".{NAME}.{uuid.uuid4().hex}"
    try:
        unfinished.write_text(uuid.uuid4().hex)
        with suppress(FileExistsError):  # somebody else was faster
            os.link(unfinished, lab.root / NAME)
    except FileNotFoundError:
        raise StoreUnreachable(f"the lab {lab.root} is not there now") from None
    except OSError as error:
        raise UserError(f"{lab.root / NAME} cannot be written: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    if (made := known(lab)) is None:
        raise StoreUnreachable(f"the lab {lab.root} is not there now")
    return made


def known(lab: Lab) -> LabId | None:
    """Return which lab this is, without making anything; None if it has no id yet.

    Raises:
        UserError: The file holds no id, or cannot be read.
    """
    if lab.remote is not None:
        return LabId(uuid.uuid5(uuid.NAMESPACE_URL, lab.remote).hex, lab.remote, None)
    try:
        said = (lab.root / NAME).read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{lab.root / NAME} cannot be read: {error.strerror}") from None
    uid = said.strip()
    if len(uid) != 32 or set(uid) - set("0123456789abcdef"):
        raise UserError(f"{lab.root}/{NAME} holds no id of a lab: delete it, and the lab gets a new one")
    return LabId(uid, str(lab.root), host_name())
