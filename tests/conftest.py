"""Settings for every test, made before JAX is imported anywhere."""

import os
import tempfile
from pathlib import Path

from hypothesis import settings

# A machine that does other things besides is no bug.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")

# Compiled functions are shared by all test processes, by the workers that tests start, and by later runs.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"jestlab-tests-{os.getuid()}" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
