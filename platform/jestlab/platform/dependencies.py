"""Packages that part of jestlab does without: the clients of clusters, and what the container leaves out."""

from __future__ import annotations

from importlib import metadata

from jestlab.platform.errors import UserError

CLIENTS = {"kubernetes": ("kubernetes",), "vertex": ("google-auth", "google-cloud-aiplatform", "requests")}
"""Executor → the packages of its extra, which has its name."""

LAUNCHING = {
    "jinja2": "reports",
    "matplotlib": "figures",
    "pandas": "tables",
    "resvg-py": "icons",
    "starlette": "pages",
    "uvicorn": "pages",
    "xmanager": "launches",
}
"""Package → what it is needed for. No worker imports them, and the container has none of them."""


def installed(package: str) -> bool:
    """Return whether a package is installed."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def missing_client(executor: str) -> str | None:
    """Say in one line what to install for an executor; None if nothing is missing."""
    if all(map(installed, CLIENTS.get(executor, ()))):
        return None
    return f"{executor} needs its client: pip install 'jestlab[{executor}]'"


def check_client(executor: str) -> None:
    """Make sure that what an executor imports is installed.

    Raises:
        UserError: It is not.
    """
    if (missing := missing_client(executor)) is not None:
        raise UserError(missing)


def of_module(module: str | None) -> str | None:
    """Say in one line what a module that could not be imported is for; None if it is none of `LAUNCHING`."""
    package = (module or "").partition(".")[0].replace("_", "-")
    if (purpose := LAUNCHING.get(package)) is None:
        return None
    return (
        f"{package}, which {purpose} need, is not installed: workers do without it; "
        f"do this where all of jestlab is installed, or pip install {package}"
    )
