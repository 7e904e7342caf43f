"""An error in a spec is one line with file, line, path, and fix; several are reported together."""

import labs_support as labs
import pytest

from jestlab.platform.errors import Mistakes, SpecError, UserError, UserErrors, sentence, within
from jestlab.platform.spec import StudySpec, load
from jestlab.platform.spec.yaml import Document

TABLES = {
    "one error": """
question: why => runs: is missing
runs: {a: 3} => 1: runs.a: must be a mapping of overrides of the base, not 3
- a => a spec is a mapping of name, question,
runs: {../a: {}} => 1: runs.../a: invalid name '../a'
runs: {1e3: {}} => 1: runs.1000: must be a valid string, not 1000 (a whole number): put it in quotes
{runs: {a: {}}, score: loss} => 1: score.0: must match pattern
{runs: {a: {}}, adopted: [a]} => 1: adopted.0: 'a' is a run
runs: {a: {filtering_ratio: 1}} => 1: runs.a.filtering_ratio: unknown key: did you mean 'selection.filtering
runs: {a: {data.train.kind: shapes, data.train.path: x}} => 1: runs.a.data.train.path: not valid for kind
runs: {a: {data.train.kind: foldr}} => 1: runs.a.data.train: unknown kind 'foldr': did you mean 'folder'?
runs: {a: {data.train: {kind: folder}}} => 1: runs.a.data.train.path: is missing
{base: 3, runs: {a: {}}} => 1: base: must be a mapping
base: {schedule.batch_sise: 8}
runs: {a: {program: weights, path: x.npz}} => 1: base.schedule.batch_sise: unknown key
runs: {a: {schedule.batch_size: many}} => 1: runs.a.schedule.batch_size: must be a valid integer, not 'many'
runs: {a: {schedule.batch_size: true}} => 1: runs.a.schedule.batch_size: must be a number, not true
runs: {a: {runtime.keep_best: 1}} => 1: runs.a.runtime.keep_best: must be true or false, not 1
{runs: {a: {}}, reports: [{pareto: {trajectories: x}}]} => 1: reports.0.trajectories: must be true or false
runs: {a: {}}
reports: [{table: {best: {t: {of: a, by: m, x: 1}}}}] => 2: reports.0.best.t.x: unknown key: known
base:
  model: {vision: {patch_size: 5}}
runs: {a: {}} => 2: base.model.vision: patch_size 5 does not divide image_size 16
{base: {seed: 1}, runs: {a: {}}} => 1: base.seed: replicates are set by `seeds`
{program: command, runs: {a: {command: x, seed: one}}} => 1: runs.a.seed: must be a whole number
{seeds: [1, 1], runs: {a: {}}} => 1: seeds: duplicate seed
{program: trian, runs: {a: {x: 1}, b: {}}} => 1: program: no program 'trian': did you mean 'train'?
runs: {a: {program: 'no_such_module:main', x: 1}}
axes: [{runs: [a], grid: {x: [1]}}] => 1: runs.a.program: no module 'no_such_module'
""",
    "axes": """
{runs: {a: {}}, axes: [{runs: [a], grid: {}}]} => 1: axes.0.grid: must be a mapping from keys to lists
{runs: {a: {}}, axes: [{runs: [a], zip: 3}]} => 1: axes.0.zip: must be a mapping from keys to lists
runs: {a: {}}
axes: [{runs: [a], grid: {seed: [1]}, cases: [{seed: 1}]}] => 2: axes.0: must have exactly one of grid, zip
runs: {JEST++_f0.8-B: {}}
axes: [{runs: [JEST++_f0.8-B], grid: {seed: [1]}}] => 2: axes.0.grid.seed: replicates
runs: {a: {}}
axes: [{runs: [a], grid: {selection.chunks: 4, optimizer.beta1: []}}]
=> 2: axes.0.grid.selection.chunks: must be a list
=> 2: axes.0.grid.optimizer.beta1: must be a list
runs: {a: {}}
axes: [{runs: [a], zip: {selection.chunks: [1, 2], schedule.batch_size: [8]}}]
=> 2: axes.0.zip: must have as many values for each key: selection.chunks has 2, schedule.batch_size has 1
runs: {a: {}}
axes: [{runs: [a], grid: {selection.chunks: [4, 4]}}] => 2: axes.0: duplicate point 'a chunks=4'
runs: {a: {}}
axes:
- {runs: [a], grid: {selection.chunks: [4]}}
- {runs: [a], cases: [{selection: {chunks: 8}}]} => 4: axes.1: 'a' already has 'selection.chunks' from axes.0
runs: {a: {}}
axes:
- runs: [a]
  cases:
  - selection.chunks: 4
  - selection.chunks: 0 => 6: axes.0.cases.1.selection.chunks: must be greater than 0
""",
    "dependencies": """
axes: [{runs: [a], grid: {optimizer.beta2: [0.9]}}]
runs: {a: {needs: [b]}, b: {needs: [c]}, c: {needs: [a]}}
=> 2: runs.a.needs: dependencies form a cycle: a beta2=0.9 → b → c → a beta2=0.9
axes: [{runs: [r], grid: {optimizer.beta2: [0.1, 0.2, 0.3]}}]
runs: {r: {}, a: {selection: {rule: joint, reference: r}}}
=> 2: runs.a.selection.reference: 'r' is 3 runs ('r beta2=0.1', 'r beta2=0.2', 'r beta2=0.3'): put this run
axes: [{runs: [r], grid: {optimizer.beta2: [0.9]}}, {runs: [a], grid: {optimizer.beta2: [0.9, 0.99]}}]
runs: {r: {}, a: {selection: {rule: joint, reference: r}}}
=> 2: runs.a.selection.reference: no run 'r' with optimizer.beta2=0.99
""",
    "unknown keys without a value": """
sedes: null
runs: {a: {}, b: {}}
axes: [{runs: [a], grid: {loss: [sigmoid]}, gird: null}]
claims: [{statement: A, of: a, above: b, abov: null}]
=> 1: sedes: unknown key: did you mean 'seeds'?
=> 3: axes.0.gird: unknown key: did you mean 'grid'?
=> 4: claims.0.abov: unknown key: did you mean 'above'?
""",
    "several errors": """
sedes: 3
base: {model.visoin: {width: 64}}
runs:
  a: {selection.rul: joint, schedule.batch_sice: 3}
axes: [{runs: [a], grid: {selection.chunk: [4]}}]
resources: {paralel: 2}
=> 1: sedes: unknown key: did you mean 'seeds'?
=> 2: base.model.visoin: unknown key: did you mean 'vision'?
=> 4: runs.a.selection.rul: unknown key: did you mean 'rule'?
=> 4: runs.a.schedule.batch_sice: unknown key: did you mean 'batch_size'?
=> 5: axes.0.grid.selection.chunk: unknown key: did you mean 'chunks'?
=> 6: resources.paralel: unknown key: did you mean 'parallel'?
runs:
  reference: {}
  joint: {selection: {rule: joint, reference: refrence}}
  tuned: {needs: [refrence]}
  same: {match: {flops: jiont}}
axes: [{runs: [jont], grid: {selection.chunks: [4]}}]
claims: [{statement: s, of: joint chunks=4, above: unifrom}]
reports: [table: {baseline: refrnce}]
=> 3: runs.joint.selection.reference: no run 'refrence': did you mean 'reference'?
=> 4: runs.tuned.needs: no run 'refrence': did you mean 'reference'?
=> 5: runs.same.match: no run 'jiont': did you mean 'joint'?
=> 6: axes.0.runs: no run 'jont': did you mean 'joint'?
=> 7: claims.0.above: no run 'unifrom': known:
=> 8: reports.0.baseline: no run 'refrnce': did you mean 'reference'?
seeds: three
question: [why]
runs: {b: {needs: [3]}}
axes:
- {runs: [b], gird: {optimizer.beta1: [0.5]}}
claims:
- {statement: s, of: a}
reports:
- curvs
- pareto: {ovr: flops}
- curves: {over: flop}
metrics: {x/y: {goal: most}, x/z: {gaol: max}}
=> 1: seeds: must be a number of replicates, a list of seeds or {until: decided}, not 'three'
=> 2: question: must be a valid string
=> 3: runs.b.needs: must be a list of names of runs
=> 5: axes.0.gird: unknown key: did you mean 'grid'?
=> 7: claims.0: must have exactly one of above, below, better_than, near, exponent_above, not none
=> 9: reports.0.kind: no report 'curvs': did you mean 'curves'?
=> 10: reports.1.ovr: unknown key: did you mean 'over'?
=> 11: reports.2.over: 'flop' is not valid: did you mean 'flops'?
=> 12: metrics.x/y.goal: 'most' is not valid: 
=> 12: metrics.x/z.gaol: unknown key: did you mean 'goal'?
runs: {a: {}, b: {}}
axes:
- {runs: [a, b], grid: {optimizer.beta1: [1.5, 0.9, -1]}}
- {runs: [b], cases: [{loss: sigmoyd}, {loss: sigmoid}]}
=> 3: axes.0.grid.optimizer.beta1: must be less than 1, not 1.5
=> 3: axes.0.grid.optimizer.beta1: must be greater than or equal to 0, not -1
=> 4: axes.1.cases.0.loss: 'sigmoyd' is not valid: did you mean 'sigmoid'?
studies:
  one: {runs: {a: {selection.rul: joint}, b: {loss: sigmod}}}
  two: {runs: {a: {schedule.batch_size: 0}}}
=> 2: studies.one.runs.a.selection.rul: unknown key
=> 2: studies.one.runs.b.loss: 'sigmod' is not valid
=> 3: studies.two.runs.a.schedule.batch_size: must be greater than 0
runs: {a: {}}
family: {rat: 0.05} => 2: family.rat: unknown key: did you mean 'rate'?
runs: {a: {}}
seeds: {until: decided, at_most: 30}
family: {test: signed_rank} => 2: seeds.at_most: is above 20, the maximum of the test signed_rank: lower it
""",
    # Each of these specs has one mistake, which could cause others.
    "no follow-up errors": """
{base: {optimizer.beta1: 3}, runs: {a: {}, b: {}, c: {}}} => 1: base.optimizer.beta1: must be less than 1
runs: {a: {loss: sigmod}, b: {}}
axes: [{runs: [a], grid: {optimizer.beta1: [0.5]}}]
reports: [table: {baseline: a beta1=0.5}]
claims: [{statement: s, of: a beta1=0.5, above: b}] => 1: runs.a.loss: 'sigmod' is not valid
runs: {joint: {}, b: {}}
axes: [{runs: [jont], grid: {optimizer.beta1: [0.5]}}]
reports: [table: {baseline: joint beta1=0.5}] => 2: axes.0.runs: no run 'jont'
runs: {r: {needs: [3]}, a: {selection: {rule: joint, reference: r}}} => 1: runs.r.needs: must be a list of
""",
    "claims": """
runs: {reference: {}, uniform: {}, joint: {}}
axes: [{runs: [joint], grid: {selection.filtering_ratio: [0.5, 0.8]}}]
claims:
- {statement: A, of: joint filtering_ratio=0.9, above: uniform}
- {statement: B, of: joint, below: [uniform, unifrm]}
- {statement: C, of: {of: joint, minus: unifrm}, above: uniform}
=> 4: claims.0.of: no run 'joint filtering_ratio=0.9': did you mean 'joint filtering_ratio=0.8'?
=> 5: claims.1.below.1: no run 'unifrm': did you mean 'uniform'?
=> 6: claims.2.of.minus: no run 'unifrm': did you mean 'uniform'?
runs: {a: {}}
claims:
- {statement: A, of: a, abov: a} => 3: claims.0.abov: unknown key: did you mean 'above'?
runs: {a: {}, b: {}}
claims:
- {statement: A, of: a, above: b}
- {statement: A, of: a, below: b} => 4: claims.1.statement: duplicate statement
""",
    "reports": """
runs: {a: {}}
figure: {height: tall}
reports:
- curves: {figure: {width: 3.25}}
- pareto: {figure: {legend: left}}
- table: {figure: {width: 3in}}
- curves: {metric: loss, smooth: wide}
- table: {width: wide}
- table: {digits: -1}
- table: {digits: two}
- table: {notes: 'no'}
=> 2: figure.height: must be a length with its unit
=> 4: reports.0.figure.width: must be a length with its unit
=> 5: reports.1.figure.legend: 'left' is not valid
=> 6: reports.2.figure: unknown key
=> 7: reports.3.smooth: must be a valid integer
=> 8: reports.4.width:
=> 9: reports.5.digits
=> 10: reports.6.digits
=> 11: reports.7.notes
{runs: {a: {}}, figure: wide} => 1: figure: must be a mapping
{runs: {a: {}}, reports: [table: {rows: [jiont, a]}]} => 1: reports.0.rows.0: no run 'jiont'
{runs: {a: {}}, reports: [table: {rows: [best, a], best: {best: {of: [b, a], by: loss}}}]}
=> 1: reports.0.best.best.of.0: no run 'b'
{runs: {a: {}}, reports: [table: {name: scaling, by: [width]}]} => 1: reports.0: the table scaling needs x
{runs: {a: {}}, reports: [table: {name: scaling, x: width, to: 1}]} => 1: reports.0.to: must be greater than 1
{runs: {a: {}}, reports: [table: {to: 2}]} => 1: reports.0: x, by, and to are options of the table scaling
{runs: {a: {}}, reports: [curves: {best: {best: {of: a}}}]} => 1: reports.0.best.best.by: is missing
""",
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_each_mistake_is_one_line_with_place_and_fix(check_errors, table):
    check_errors(table)


def test_rejects_empty_files_and_deep_nesting(tmp_path):
    file = tmp_path / "study.yaml"
    deep = "runs: {a: {%s" % ("b: {" * 3_000)
    for text, message in (("", "a spec is a mapping of name, "), (deep, "nested too deeply for a spec")):
        file.write_text(text)
        with pytest.raises(UserError, match=f"study.yaml: {message}"):
            load(str(file))


def test_reports_the_first_20_mistakes_and_counts_all(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("runs:\n" + "".join(f"  r{n}: {{loss: l{n}}}\n" for n in range(27)))
    with pytest.raises(UserErrors) as caught:
        load(str(file))
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert lines[19].startswith(f"{file}:21: runs.r19.loss: 'l19' is not valid")
    assert lines[20] == f"and 7 more: 27 mistakes in {file}"


def test_command_line_prints_each_mistake_on_its_own_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text("sedes: 3\nruns: {a: {loss: sigmod}}\n")
    done = labs.here("plan", "study.yaml", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    first, second, last = done.stderr.splitlines()
    assert first.startswith("jestlab: study.yaml:1: sedes: ")
    assert second.startswith("jestlab: study.yaml:2: runs.a.loss: ")
    assert last == "jestlab: 2 mistakes in study.yaml"


def test_mistakes_name_the_override_or_the_part_that_they_are_in(tmp_path):
    (tmp_path / "part.yaml").write_text("sedes: 1\nruns: {a: {loss: sigmod}, b: {}}\n")
    (tmp_path / "study.yaml").write_text("runs: {a: {loss: sigmod}, b: {}}\n")
    (tmp_path / "all.yaml").write_text("studies: [part.yaml]\n")
    for name, overrides, expected in (
        ("study", ["runs.b.schedule.batch_size=0"], {"--set runs.b.schedule.batch_size", "study.yaml:1"}),
        ("study", ["seeds=3"], {"study.yaml:1"}),
        ("all", [], {"part.yaml:1", "part.yaml:2"}),
    ):
        with pytest.raises(UserError) as caught:
            load(str(tmp_path / f"{name}.yaml"), overrides=overrides)
        lines = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
        assert {line.split(": ")[0] for line in lines if "mistakes in" not in line} == expected


def test_no_error_contains_the_address_of_an_object():
    written = {"name": "s", "runs": {"a": {}}}
    for key in ("score", "seeds", "adopted", "reports", "claims", "metrics", "name", "base", "question"):
        for value in (object(), [object()], {"x": object()}, open):
            with pytest.raises(SpecError) as caught:
                StudySpec.parse(written | {key: value})
            assert " at 0x" not in str(caught.value)
    assert sentence(ValueError(f"no\n {object()}")) == "no <object object>"
    assert sentence(OSError(28, "No space left on device", "x")) == "x: No space left on device"


SCALARS = """
program: command
base: {command: "true"}
runs: {a: {}, b: {n: 1, needs: %s}}
axes: [{runs: %s, grid: {m: [1, 2]}}]
score: %s
adopted: %s
record: {files: %s, packages: %s}
resources: {retry_exit_codes: %s}
reports: [{curves: {runs: %s, score: %s, metric: %s, highlight: %s}}, {table: {columns: %s, rows: %s}}]
"""


def test_a_single_value_is_a_list_of_one():
    values = ("a", "a", "x/y", "old", "f.txt", "numpy", "3", "a", "x/y", "loss", "a", "score", "a")
    written = [SCALARS % values, SCALARS % tuple(f"[{value}]" for value in values)]
    single, listed = (StudySpec.parse({"name": "s", **Document(text).value}) for text in written)
    assert single == listed == StudySpec.parse(single.to_dict())
    assert StudySpec.parse({"name": "s", "runs": {"a": {}}, "reports": "curves"}).reports[0].kind == "curves"


@pytest.mark.parametrize("seeds", [0, 100_001, [], [0, 2**32], [-1], "no"])
def test_an_error_of_seeds_names_their_range(seeds):
    with pytest.raises(SpecError, match=r"\(replicates: 1 to 100,000; seeds: 0 to 4,294,967,295\)"):
        StudySpec.parse({"name": "s", "runs": {"a": {}}, "seeds": seeds})


def test_mistakes_collects_each_error_once_with_the_path_around_it():
    mistakes = Mistakes()
    for _ in range(2):
        with mistakes, within("runs", "a"):
            inner = Mistakes()
            inner.add([SpecError(("x",), "is wrong"), SpecError(("y",), "is wrong")])
            inner.check()
    with pytest.raises(SpecError) as caught:
        mistakes.check()
    assert [str(error) for error in caught.value.errors] == ["runs.a.x: is wrong", "runs.a.y: is wrong"]
    with pytest.raises(ZeroDivisionError), mistakes:
        _ = 1 / 0
