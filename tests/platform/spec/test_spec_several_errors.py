"""Several mistakes in a spec are told together: a line each, in the order of the file, without follow-ups."""

import textwrap

import pytest

from jestlab.platform.cli import main
from jestlab.platform.errors import Mistakes, SpecError, SpecErrors, UserError, UserErrors, within
from jestlab.platform.spec import Study, load

TOGETHER = {
    "keys everywhere": (
        """
        sedes: 3
        base: {model.visoin: {width: 64}}
        runs:
          a: {selection.rul: joint, schedule.batch_sice: 3}
        axes: [{runs: [a], grid: {selection.chunk: [4]}}]
        resources: {paralel: 2}
        """,
        [
            ":2: sedes: unknown key: did you mean 'seeds'?",
            ":3: base.model.visoin: unknown key: did you mean 'vision'?",
            ":5: runs.a.selection.rul: unknown key: did you mean 'rule'?",
            ":5: runs.a.schedule.batch_sice: unknown key: did you mean 'batch_size'?",
            ":7: resources.paralel: unknown key: did you mean 'parallel'?",
        ],
    ),
    "configs of several runs": (
        """
        runs:
          a: {schedule.batch_size: 0, optimizer.beta2: 2}
          fine: {}
          b: {selection: {rule: joint}}
        """,
        [
            ":3: runs.a.optimizer.beta2: must be less than 1, not 2",
            ":3: runs.a.schedule.batch_size: must be greater than 0, not 0",
            ":5: runs.b.selection: rule 'joint' by 'learnability' needs a reference",
        ],
    ),
    "unknown runs everywhere": (
        """
        runs:
          reference: {}
          joint: {selection: {rule: joint, reference: refrence}}
          tuned: {needs: [refrence]}
          same: {match: {flops: jiont}}
        axes: [{runs: [jont], grid: {selection.chunks: [4]}}]
        claims: [{statement: s, of: joint chunks=4, above: unifrom}]
        reports: [table: {baseline: refrnce}]
        """,
        [
            ":5: runs.tuned.needs: no run 'refrence': did you mean 'reference'?",
            ":6: runs.same.match: no run 'jiont': did you mean 'joint'?",
            ":7: axes.0.runs: no run 'jont': did you mean 'joint'?",
            ":8: claims.0.above: no run 'unifrom': known: ",
            ":9: reports.0.baseline: no run 'refrnce': did you mean 'reference'?",
        ],
    ),
    "wrong values and wrong runs": (
        """
        seeds: three
        question: [why]
        runs:
          reference: {}
          a: {selection: {rule: joint, reference: refrence}}
          b: {needs: [3]}
        axes:
        - {runs: [reference], gird: {optimizer.beta1: [0.5]}}
        claims:
        - {statement: s, of: a}
        - {statement: t, of: a, above: refernce}
        reports:
        - curvs
        - pareto: {cots: flops}
        - table: {baseline: refernce}
        metrics: {x/y: {goal: most}, x/z: {gaol: max}}
        """,
        [
            ":2: seeds: must be a number of replicates",
            ":3: question: must be a string",
            ":6: runs.a.selection.reference: no run 'refrence'",
            ":7: runs.b.needs: must be a list of names of runs",
            ":9: axes.0.gird: unknown key: did you mean 'grid'?",
            ":11: claims.0: must have exactly one of above, below",
            ":12: claims.1.above: no run 'refernce'",
            ":14: reports.0.kind: no report 'curvs'",
            ":15: reports.1.cots: pareto has no such option: did you mean 'cost'?",
            ":16: reports.2.baseline: no run 'refernce'",
            ":17: metrics.x/y.goal: must be max or min",
            ":17: metrics.x/z.gaol: unknown key: did you mean 'goal'?",
        ],
    ),
    "points of an axis": (
        """
        runs: {a: {}, b: {}}
        axes:
        - {runs: [a, b], grid: {optimizer.beta1: [1.5, 0.9, -1]}}
        - {runs: [b], cases: [{loss: sigmoyd}, {loss: sigmoid}]}
        """,
        [
            ":4: axes.0.grid.optimizer.beta1: must be less than 1, not 1.5",
            ":4: axes.0.grid.optimizer.beta1: must be greater than or equal to 0, not -1",
            ":5: axes.1.cases.0.loss: 'sigmoyd' is not valid: did you mean 'sigmoid'?",
        ],
    ),
    "commands": (
        """
        program: command
        runs:
          a: {command: [run, "{rate}", "{widht}"], width: 3}
          b: {command: "", directory: x}
        """,
        [
            ":4: runs.a.command: no value for {rate}",
            ":4: runs.a.command: no value for {widht}: did you mean 'width'?",
            ":5: runs.b.directory: 'directory' is what jestlab gives the command",
            ":5: runs.b.command: is empty",
        ],
    ),
    "parts of a union": (
        """
        studies:
          one: {runs: {a: {selection.rul: joint}, b: {loss: sigmod}}, seeds: 0}
          two: {runs: {a: {schedule.batch_size: 0}}, reports: [curvs]}
        """,
        [
            ":3: studies.one.seeds: must be a number of replicates",
            ":4: studies.two.reports.0.kind: no report 'curvs'",
        ],
    ),
    "configs of a union's parts": (
        """
        studies:
          one: {runs: {a: {selection.rul: joint}, b: {loss: sigmod}}}
          two: {runs: {a: {schedule.batch_size: 0}}}
        """,
        [
            ":3: studies.one.runs.a.selection.rul: unknown key",
            ":3: studies.one.runs.b.loss: 'sigmod' is not valid",
            ":4: studies.two.runs.a.schedule.batch_size: must be greater than 0",
        ],
    ),
}


def lines_of(tmp_path, text):
    file = tmp_path / "study.yaml"
    file.write_text(textwrap.dedent(text))
    with pytest.raises(UserError) as caught:
        load(str(file))
    return file, str(caught.value).splitlines()


@pytest.mark.parametrize(("text", "expected"), TOGETHER.values(), ids=TOGETHER.keys())
def test_mistakes_are_told_together_in_the_order_of_the_file(tmp_path, text, expected):
    file, lines = lines_of(tmp_path, text)
    told, last = lines[:-1], lines[-1]
    assert len(told) == len(expected), "\n".join(lines)
    for line, beginning in zip(told, expected, strict=True):
        assert line.startswith(f"{file}{beginning}"), line
    assert last == f"{len(expected)} mistakes in {file}"


ALONE = {
    "an unknown rule needs no reference": ("runs:\n  a: {selection.rule: jiont}", "'jiont' is not valid"),
    "a misspelt `runs` is not missing as well": ("rusn: {a: {}}", "unknown key: did you mean 'runs'?"),
    "a wrong base is not wrong in every run": (
        "base: {optimizer.beta1: 3}\nruns: {a: {}, b: {}, c: {}}",
        "base.optimizer.beta1: must be less than 1",
    ),
    "runs of a base with an unknown key": (
        "base: {optimizer.beta: 0.1}\nruns: {a: {}, b: {}}",
        "base.optimizer.beta: unknown key",
    ),
    "the points of a wrong run are not unknown": (
        "runs: {a: {loss: sigmod}, b: {}}\naxes: [{runs: [a], grid: {optimizer.beta1: [0.5]}}]\n"
        "reports: [table: {baseline: a beta1=0.5}]\n"
        "claims: [{statement: s, of: a beta1=0.5, above: b}]",
        "runs.a.loss: 'sigmod' is not valid",
    ),
    "the points of a wrong axis are not unknown": (
        "runs: {a: {}, b: {}}\naxes: [{runs: [a], gird: {optimizer.beta1: [0.5]}}]\n"
        "reports: [table: {baseline: a beta1=0.5}]",
        "axes.0.gird: unknown key",
    ),
    "nor those of an axis of a misspelt run": (
        "runs: {joint: {}, b: {}}\naxes: [{runs: [jont], grid: {optimizer.beta1: [0.5]}}]\n"
        "reports: [table: {baseline: joint beta1=0.5}]",
        "axes.0.runs: no run 'jont'",
    ),
    "what a wrong run is named by is not unknown": (
        "runs:\n  r: {needs: [3]}\n  a: {selection: {rule: joint, reference: r}}",
        "runs.r.needs: must be a list of names",
    ),
    "values on an axis may be what is missing": (
        "runs:\n  r: {}\n  a: {selection.rule: joint}\naxes: [{runs: [a], gird: {selection.reference: [r]}}]",
        "axes.0.gird: unknown key",
    ),
    "an unknown program": ("program: trian\nruns: {a: {x: 1}, b: {y: 2}}", "no program 'trian'"),
    "a run of an unknown program": (
        "runs: {a: {program: 'no_such_module:main', x: 1}}\naxes: [{runs: [a], grid: {x: [1]}}]",
        "no module 'no_such_module'",
    ),
    "a cycle among runs that are fine": (
        "runs:\n  a: {needs: [b]}\n  b: {needs: [a]}",
        "dependencies form a cycle",
    ),
}


@pytest.mark.parametrize(("text", "message"), ALONE.values(), ids=ALONE.keys())
def test_one_mistake_is_one_line_without_what_follows_from_it(tmp_path, text, message):
    _, lines = lines_of(tmp_path, text)
    assert len(lines) == 1, "\n".join(lines)
    assert message in lines[0]


def test_of_many_the_first_are_told_and_all_counted(tmp_path):
    runs = "".join(f"  r{n}: {{loss: l{n}}}\n" for n in range(27))
    file, lines = lines_of(tmp_path, f"runs:\n{runs}")
    assert len(lines) == 21
    assert lines[19].startswith(f"{file}:21: runs.r19.loss: 'l19' is not valid")
    assert lines[20] == f"and 7 more: 27 mistakes in {file}"


def test_the_command_line_prints_each_on_a_line_of_its_own(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text("sedes: 3\nruns: {a: {loss: sigmod}}\n")
    for arguments in (["plan", "study.yaml"], ["plan", "study.yaml", "--json"], ["show", "study.yaml"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        captured = capsys.readouterr()
        assert (stopped.value.code, captured.out) == (1, "")
        assert captured.err.splitlines() == [
            "jestlab: study.yaml:1: sedes: unknown key: did you mean 'seeds'?",
            "jestlab: study.yaml:2: runs.a.loss: 'sigmod' is not valid: did you mean 'sigmoid'? "
            "(valid: sigmoid, softmax, distilled, drrho)",
            "jestlab: 2 mistakes in study.yaml",
        ]


def test_an_override_that_is_wrong_is_told_as_one_beside_the_others(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("runs: {a: {loss: sigmod}, b: {}}\n")
    with pytest.raises(UserErrors) as caught:
        load(str(file), overrides=["runs.b.schedule.batch_size=0"])
    assert sorted(line.split(":")[0] for line in caught.value.lines[:-1]) == [
        "--set runs.b.schedule.batch_size",
        str(file),
    ]


def test_a_study_of_a_list_of_files_names_the_file_of_each_mistake(tmp_path):
    (tmp_path / "part.yaml").write_text("sedes: 1\nruns: {a: {loss: sigmod}}\n")
    (tmp_path / "all.yaml").write_text("studies: [part.yaml]\n")
    with pytest.raises(UserErrors) as caught:
        load(str(tmp_path / "all.yaml"))
    assert [line.split(": ")[0] for line in caught.value.lines[:-1]] == [
        f"{tmp_path}/part.yaml:1",
        f"{tmp_path}/part.yaml:2",
    ]


def test_specs_in_python_tell_all_without_lines(tmp_path):
    file = tmp_path / "study.py"
    file.write_text(
        "SCALES = ('smoke',)\n"
        "def get_config(scale):\n"
        "    return {'runs': {'a': {'loss': 'sigmod'}, 'b': {'selection.rul': 'joint'}}}\n"
    )
    with pytest.raises(UserErrors) as caught:
        load(str(file))
    assert [line.split(": ")[1] for line in caught.value.lines[:-1]] == [
        "runs.b.selection.rul",
        "runs.a.loss",
    ]


def test_as_one_error_several_are_the_first():
    with pytest.raises(SpecErrors) as caught:
        Study.parse({"name": "s", "sedes": 1, "runs": {"a": {}}, "seeds": "x"})
    assert str(caught.value) == "sedes: unknown key: did you mean 'seeds'?"
    assert [error.path for error in caught.value.errors] == [("sedes",), ("seeds",)]


def test_mistakes_are_gathered_once_each_with_the_place_around_them():
    mistakes = Mistakes()
    for _ in range(2):
        with mistakes, within("runs", "a"):
            raise SpecErrors([SpecError(("x",), "is wrong"), SpecError(("y",), "is wrong")])
    assert [str(error) for error in mistakes.together().errors] == [
        "runs.a.x: is wrong",
        "runs.a.y: is wrong",
    ]
    with pytest.raises(ZeroDivisionError), mistakes:
        _ = 1 / 0
