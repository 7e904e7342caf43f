"""Which words of a command are certainly files that it executes."""

import shlex

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.programs.command import check_scripts, scripts_of


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


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (b"#!/bin/sh\r\n", "the first line of .*/run ends in a carriage return, .* convert the file, sed -i"),
        (b"#!/usr/bin/env bash\r\n", "ends in a carriage return"),
        (b"#! /bin/sh -e\r\n", "ends in a carriage return"),
    ],
)
def test_a_first_line_that_names_no_program_is_refused(tmp_path, first, message):
    (tmp_path / "run").write_bytes(first + b"exit\n")
    for words in (["./run"], ["env", "A=1", "./run"], ["nice", str(tmp_path / "run"), "x"]):
        with pytest.raises(UserError, match=message):
            check_scripts(words, tmp_path)
    check_scripts(["sh", "./run"], tmp_path)  # there it is a comment


@pytest.mark.parametrize("first", [b"#!/bin/sh\n", b"#!/usr/bin/env python\n", b"# \r\n", b"\x7fELF", b""])
def test_other_first_lines_are_taken(tmp_path, first):
    (tmp_path / "run").write_bytes(first)
    check_scripts(["./run"], tmp_path)
