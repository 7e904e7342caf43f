"""What TensorBoard events need."""

import subprocess
import sys

import pytest


@pytest.mark.oracle
def test_they_do_not_import_pytorch_which_can_be_imported_later():
    code = (
        "import importlib.util, sys, jestlab.models.training.events\n"
        "assert 'torch' not in sys.modules\n"
        "assert importlib.util.find_spec('torch') is not None"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
