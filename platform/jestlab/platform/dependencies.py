"""Optional packages: the clients of executors, and packages that workers don't need."""

from __future__ import annotations

from importlib import metadata

from jestlab.platform.errors import UserError

CLIENTS: dict[str, tuple[str, ...]] = {
    "local": (),
    "vertex": ("google-auth", "requests"),
    "kubernetes": ("kubernetes",),
    "slurm": (),
}
"""Each built-in executor → the packages that it requires, which are the extra with its name."""

LAUNCHING = {
    "jinja2": "reports",
    "matplotlib": "figures",
    "pandas": "tables",
    "resvg-py": "icons",
    "starlette": "pages",
    "uvicorn": "pages",
    "xmanager": "launches",
}
"""Package → the features that require it. Workers don't import these packages, and containers lack them."""


def installed(package: str) -> bool:
    """Return whether a package is installed."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def missing_client(executor: str) -> str | None:
    """Return an error message if any package of an executor is missing; None if all are installed."""
    if all(map(installed, CLIENTS.get(executor, ()))):
        return None
    return f"{executor} needs its client: pip install 'jestlab[{executor}]'"


def check_client(executor: str) -> None:
    """Raise UserError if any package of an executor is missing."""
    if (missing := missing_client(executor)) is not None:
        raise UserError(missing)


def of_module(module: str | None) -> str | None:
    """Return an error message for a missing module of a package in `LAUNCHING`; None for any other module."""
    package = (module or "").partition(".")[0].replace("_", "-")
    if (purpose := LAUNCHING.get(package)) is None:
        return None
    return (
        f"{package}, which {purpose} need, is not installed: pip install {package}, or use a full "
        "installation (workers have a smaller one)"
    )
