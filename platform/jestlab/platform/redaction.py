"""Replace credentials in text that is shown or stored; optional parts of provenance."""

import re
from collections.abc import Iterable
from typing import Literal, get_args

Part = Literal["changes", "environment", "sources"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Optional parts of provenance: uncommitted changes, environment variables, and the user's code."""

SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|AUTH|PRIVATE|COOKIE|SIGNATURE|SAS", re.IGNORECASE
)
"""Matches names of variables and options whose values may be secret."""

# The part of a URL up to the last @ of the word, since a password may contain @ or /.
_IN_URL = re.compile(r"://[^\s\"']*@")
# A value after a name that `SECRET_NAME` matches, such as `password=x` or `"token": "x"`.
_IN_OPTION = re.compile(
    rf"((?:{SECRET_NAME.pattern})[\w.\-]{{0,40}}[ \"']{{0,2}}[=:][ ]?)(\"[^\"]*\"|'[^']*'|[^\s&;,]+)",
    re.IGNORECASE,
)


def without_secrets(text: str, hidden: Iterable[str] = ()) -> str:
    """Replace credentials in URLs and options, and the values in `hidden`, by `***`."""
    return _IN_OPTION.sub(r"\1***", without_values(text, hidden))


def without_values(text: str, hidden: Iterable[str]) -> str:
    """Replace credentials in URLs and the values in `hidden` by `***`."""
    for value in hidden:
        text = text.replace(value, "***")
    return without_url_credentials(text)


def without_url_credentials(text: str) -> str:
    """Replace the user and password of each URL by `***`."""
    return _IN_URL.sub("://***@", text)
