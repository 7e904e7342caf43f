"""Optional packages: extras, which some features need, and packages that workers don't need."""

from importlib.util import find_spec

from jestlab.platform.errors import UserError

EXECUTORS = ("local", "vertex", "kubernetes", "slurm")
"""Names of the built-in executors. An extra with the name of an executor contains its client."""

EXTRAS: dict[str, tuple[str, ...]] = {
    "adopt": ("pyarrow", "tensorboard", "tensorboardX"),
    "gcs": ("fsspec", "gcsfs"),
    "icons": ("resvg_py",),
    "jax": (
        *("jax", "flatbuffers", "flax", "grain", "ml_dtypes", "optax", "orbax", "pyarrow", "safetensors"),
        *("sentencepiece", "simplejpeg", "tensorboardX", "tokenizers"),
    ),
    "kubernetes": ("kubernetes",),
    "notify": ("apprise",),
    "vertex": ("google.auth", "requests"),
    "xmanager": ("xmanager",),
}
"""Extra → modules that it installs."""

LAUNCHING = {
    "jinja2": "reports",
    "matplotlib": "figures",
    "pandas": "tables",
    "starlette": "pages",
    "uvicorn": "pages",
}
"""Package → the features that require it. Workers don't import these packages, and containers lack them."""

NO_RECORD = "no XManager record: pip install 'jestlab[xmanager]'"
"""Message about launches if XManager isn't installed."""


def installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent
        return False


def missing(extra: str | None) -> str | None:
    """Return an error message if any module of an extra is missing; None if all are installed."""
    absent = next((module for module in EXTRAS.get(extra or "", ()) if not installed(module)), None)
    return None if absent is None else _message(absent, str(extra))


def check(extra: str | None) -> None:
    """Raise UserError if any module of an extra is missing. Names that aren't extras need nothing."""
    if (message := missing(extra)) is not None:
        raise UserError(message)


def of_module(module: str | None) -> str | None:
    """Return an error message for a missing module of an optional package; None for any other module."""
    name = module or ""
    if (package := name.partition(".")[0]) in LAUNCHING:
        return (
            f"{package}, which {LAUNCHING[package]} need, isn't installed: pip install {package}, or use a "
            "full installation (workers have a smaller one)"
        )
    found = ((each, extra) for extra, modules in EXTRAS.items() for each in modules)
    optional = next((pair for pair in found if f"{name}.".startswith(f"{pair[0]}.")), None)
    return None if optional is None else _message(*optional)


def _message(module: str, extra: str) -> str:
    return f"{module} isn't installed: pip install 'jestlab[{extra}]'"
