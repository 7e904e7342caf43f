"""Common imports and commands don't import slow or optional packages."""

import subprocess
import sys

import pytest

SLOW = {"jax", "numpy", "pandas", "matplotlib", "sqlalchemy", "pydantic", "xmanager"}
VERBS = (
    "from jestlab.platform.cli import cli\n"
    "for verb in ('show', 'plan'): cli.main([verb, 'quickstart'], standalone_mode=False)"
)
HELP = "from jestlab.platform.cli import cli; cli.main(['launch', '--help'], standalone_mode=False)"
OWN = (
    "from jestlab.platform.cli.xmanager import xmanager_main\n"
    "from jestlab.experiments.quickstart import SCALES, get_config\n"
    "main = xmanager_main(__file__)\n"
)


@pytest.mark.parametrize(
    ("code", "not_imported"),
    [
        ("from jestlab import api", (SLOW | {"click", "IPython"}) - {"pydantic"}),
        ("from jestlab import testing; testing.check_figure", {"jax"}),
        ("import jestlab.platform.cli.results, jestlab.analysis.costs", SLOW - {"pydantic", "xmanager"}),
        ("import jestlab.models.training.events", {"torch"}),
        # Commands that read results, and workers that start, open a store.
        (
            "from jestlab.platform.store.store import Store; Store.open('{url}')",
            {"alembic", "jax", "pandas", "pydantic"},
        ),
        (
            "from jestlab.platform.spec import load; load('quickstart'); load('own.py')",
            (SLOW | {"flax", "absl.app"}) - {"numpy", "pydantic"},
        ),
        (VERBS, (SLOW | {"flax", "alembic", "grain"}) - {"pydantic", "numpy"}),
        (HELP, (SLOW | {"flax", "alembic"}) - {"pydantic"}),
    ],
)
def test_is_not_imported(code, not_imported, tmp_path, sqlite_url):
    (tmp_path / "own.py").write_text(OWN)
    code = code.replace("{url}", sqlite_url)
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint('\\n', *sys.modules)"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not not_imported & set(done.stdout.splitlines()[-1].split())
