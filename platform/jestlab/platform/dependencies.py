"""Optional packages: the clients of clusters, and packages that workers don't need."""

from __future__ import annotations

from importlib import metadata

from jestlab.platform.errors import UserError

CLIENTS = {"kubernetes": ("kubernetes",), "vertex": ("google-auth", "requests")}
"""Executor → the packages of the extra with that name."""

LAUNCHING = {
    "jinja2": "reports",
    "matplotlib": "figures",
    "pandas": "tables",
    "resvg-py": "icons",
    "starlette": "pages",
    "uvicorn": "pages",
    "xmanager": "launches",
}
"""Package → its use. Workers don't import these, and the container doesn't have them."""


def installed(package: str) -> bool:
    """Return whether a package is installed."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def missing_client(executor: str) -> str | None:
    """Return one line on the missing packages of an executor; None if all are installed."""
    if all(map(installed, CLIENTS.get(executor, ()))):
        return None
    return f"{executor} needs its client: pip install 'jestlab[{executor}]'"


def check_client(executor: str) -> None:
    """Raise UserError if a package of an executor is missing."""
    if (missing := missing_client(executor)) is not None:
        raise UserError(missing)


def of_module(module: str | None) -> str | None:
    """Return one line on a missing module, if it belongs to a package of `LAUNCHING`."""
    package = (module or "").partition(".")[0].replace("_", "-")
    if (purpose := LAUNCHING.get(package)) is None:
        return None
    return (
        f"{package}, which {purpose} need, is not installed: pip install {package}, or use a full "
        "installation (workers have a smaller one)"
    )
