"""Which words of a command are certainly files that it executes."""

import shlex

import pytest

from jestlab.platform.programs.scripts import scripts_of


@pytest.mark.parametrize(
    ("command", "scripts"),
    [
        ("python train.py --out result.py", ["train.py"]),
        ("python3.11 -u -X dev train.py", ["train.py"]),
        ("/usr/bin/python train", ["/usr/bin/python", "train"]),
        ("python -m package.train data.py", []),
        ("python -uc 'print(1)' data.py", []),
        ("python - data.py", []),
        ("python", []),
        ("./train.sh a b.py", ["./train.sh"]),
        ("env A=1 B=2 python train.py", ["train.py"]),
        ("nice -n5 sh run.sh", ["run.sh"]),
        ("sh -c 'python train.py'", []),
        ("bash -x run", ["run"]),
        ("Rscript --vanilla fit.R", ["fit.R"]),
        ("torchrun --nproc-per-node 2 train.py --plot draw.py", ["train.py"]),
        ("torchrun --standalone train.py", []),  # that may be the option's value
        ("srun -n 2 python train.py", ["train.py"]),
        ("make train", []),
        ("true", []),
        ("env", []),
    ],
)
def test_scripts(command, scripts):
    assert list(scripts_of(shlex.split(command))) == scripts
