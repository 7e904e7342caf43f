"""An error in a spec is one line with file, line, path, and fix; several are reported together."""

import math
import re
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest

from jestlab.platform import programs
from jestlab.platform.errors import (
    Mistakes,
    SpecError,
    SpecErrors,
    UserError,
    UserErrors,
    sentence,
    within,
)
from jestlab.platform.lab.settings import Settings
from jestlab.platform.logs import one_line
from jestlab.platform.spec import Study, load
from jestlab.platform.spec.config_tree import fields_of, nested, validated, walk
from jestlab.platform.spec.figure import FigureOptions
from jestlab.platform.spec.record import Record
from jestlab.platform.spec.reports import REPORTS, report_of
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.yaml import Document

TABLES = {
    "one error": """
question: why
=> runs: is missing
runs: {}
=> 1: runs: must be a mapping from names to overrides of the base, not {}
runs: {a: 3}
=> 1: runs.a: must be a mapping of overrides of the base, not 3
- a
=> a spec is a mapping of name, question,
rusn: {a: {}}
=> 1: rusn: unknown key: did you mean 'runs'?
runs: {../a: {}}
=> 1: runs: invalid name '../a': expected at most 80 letters, digits and _ . + -, not beginning with
runs: {a..b: {}}
=> 1: runs: invalid name 'a..b': expected
runs: {-a: {}}
=> 1: runs: invalid name '-a': expected
runs: {1: {}}
=> 1: runs: invalid name 1 (a whole number): put it in quotes
runs: {1e3: {}}
=> 1: runs: invalid name 1000 (a whole number): put it in quotes
runs: {true: {}}
=> 1: runs: invalid name true (true or false): put it in quotes
name: my study!
runs: {a: {}}
=> 1: name: invalid name 'my study!': expected at most 80 letters
name: [a]
runs: {a: {}}
=> 1: name: invalid name ['a'] (a list)
name: 0.5
runs: {a: {}}
=> 1: name: invalid name 0.5 (a number): put it in quotes
runs: {a: {needs: [1e3]}}
=> 1: runs.a.needs: must be a list of names of runs, or a mapping from roles to them, not 1000 (a whole
runs: {a: {match: {flops: 1e3}}}
=> 1: runs.a.match.flops: must be the name of a run, not 1000 (a whole number): put it in quotes
runs: {a: {selection.reference: 1e3}}
=> 1: runs.a.selection.reference: must be a string or null, not 1000 (a whole number): put it in quotes
runs: {a: {}}
axes: [{runs: [1e3], grid: {optimizer.beta1: [0.5]}}]
=> 2: axes.0.runs: must be names of runs, not 1000 (a whole number): put it in quotes
runs: {a: {}}
reports: [{curves: {runs: [1e3]}}]
=> 2: reports.0.runs.0: must be a string, not 1000 (a whole number): put it in quotes
runs: {a: {}}
reports: [{curves: {runs: []}}]
=> 2: reports.0.runs: must have at least 1 item, not []
runs: {a: {}}
reports: [{curves: {runs: {a: 1}}}]
=> 2: reports.0.runs: must be a list, not {'a': 1}
runs: {a: {}}
record: {files: ['']}
=> 2: record.files.0: must have at least 1 character, not ''
runs: {a: {}}
claims: [{statement: x, of: 1e3, above: a}]
=> 2: claims.0.of: must name a run, by label or name, or list several, not 1000: put it in quotes
runs: {a: {}}
score: loss
=> 2: score: must be a list of evaluations, such as coco/i2t_r1, not 'loss'
runs: {a: {}}
adopted: [3, siglip]
claims: [{statement: x, of: siglip, above: a, measure: x/y}]
=> 2: adopted: must be a list of names of runs, not 3 (a whole number): put it in quotes
runs: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: {}}
=> 1: runs: invalid name 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…: expected at most 80
runs: {a: {filtering_ratio: 0.9}}
=> 1: runs.a.filtering_ratio: unknown key: did you mean 'selection.filtering_ratio'?
runs: {a: {data.train.kind: shapes, data.train.path: shards}}
=> 1: runs.a.data.train.path: not valid for kind shapes (belongs to folder and reader): set kind as well
base: {data.train: {kind: folder, path: /d}}
runs: {a: {data.train.shard_size: 4}}
=> 2: runs.a.data.train.shard_size: unknown key: known: digest, examples, kind, path
runs: {a: {data.train.kind: foldr}}
=> 1: runs.a.data.train: unknown kind 'foldr': did you mean 'folder'? (valid: shapes, folder, reader)
runs: {a: {data.train: {kind: folder}}}
=> 1: runs.a.data.train.path: is missing
base: 3
runs: {a: {}}
=> 1: base: must be a mapping
base: {selection: joint}
runs: {a: {}}
=> 1: base.selection: must be a mapping of rule, rule_options, criterion, criterion_options, loss,
runs: {a: {schedule.batch_size: many}}
=> 1: runs.a.schedule.batch_size: must be a number, not 'many' (a string)
runs: {a: {schedule.batch_size: true}}
=> 1: runs.a.schedule.batch_size: must be a number, not true (true or false)
runs: {a: {schedule.batch_size: 1.5}}
=> 1: runs.a.schedule.batch_size: must be a whole number, not 1.5
runs: {a: {schedule.batch_size: null}}
=> 1: runs.a.schedule.batch_size: must be a number, not null (nothing)
runs: {a: {optimizer.learning_rate: .inf}}
=> 1: runs.a.optimizer.learning_rate: must be a finite number, not inf
base:
  schedule: {batch_size: 8}
  schedule.batch_size: 16
runs: {a: {}}
=> 2: base.schedule.batch_size: is given twice in one mapping, nested and dotted
base:
  model: {vision: {patch_size: 5}}
runs: {a: {}}
=> 2: base.model.vision: patch_size 5 does not divide image_size 16
base: {schedule.batch_size: 8}
runs: {r: {}, a: {selection: {rule: joint, reference: r, chunks: 16}}}
=> 2: runs.a: selection.chunks 16 is above schedule.batch_size 8
runs: {a: {selection.rule: joint}}
=> 1: runs.a.selection: rule 'joint' by 'learnability' needs a reference: set selection.reference
base: {seed: 1}
runs: {a: {}}
=> 1: base.seed: replicates are set by `seeds`
seeds: {until: bored}
runs: {a: {}}
=> 1: seeds.until: must be decided, not 'bored'
seeds: 0
runs: {a: {}}
=> 1: seeds: must be a number of replicates, a list of seeds or {until: decided}, not 0
seeds: []
runs: {a: {}}
=> 1: seeds: must be a number of replicates, a list of seeds or {until: decided}, not []
seeds: [-1]
runs: {a: {}}
=> 1: seeds: must be a number of replicates, a list of seeds or {until: decided}, not [-1]
seeds: [1, 1]
runs: {a: {}}
=> 1: seeds: duplicate seed in [1, 1]
family: holm
runs: {a: {}}
=> 1: family: must be {error: 0.05} or none, not 'holm'
runs: {a: {}}
resources: {parallel: 0}
=> 2: resources.parallel: must be greater than 0, not 0
program: trian
runs: {a: {x: 1}, b: {y: 2}}
=> 1: program: no program 'trian': did you mean 'train'?
runs: {a: {program: 'no_such_module:main', x: 1}}
axes: [{runs: [a], grid: {x: [1]}}]
=> 1: runs.a.program: no module 'no_such_module' for 'no_such_module:main'
""",
    "axes": """
runs: {a: {}}
axes: [{runs: [a], grid: {seed: [1]}, cases: [{seed: 1}]}]
=> 2: axes.0: must have exactly one of grid, zip, cases, not grid and cases
runs: {a: {}}
axes: [{runs: [a], grid: {seed: [1]}}]
=> 2: axes.0.grid.seed: replicates
runs: {a: {}}
axes: [{runs: [[a]], grid: {x: [1]}}]
=> 2: axes.0.runs: must be names of runs
runs: {a: {}}
axes: [{runs: [a], grid: {selection.chunks: 4}}]
=> 2: axes.0.grid.selection.chunks: must be a list of values, not 4 (a whole number)
runs: {a: {}}
axes: [{runs: [a], grid: {selection.chunks: []}}]
=> 2: axes.0.grid.selection.chunks: has no values: give at least one, or drop the key
runs: {a: {}}
axes: [{runs: [a], zip: {selection.chunks: [1, 2], schedule.batch_size: [8]}}]
=> 2: axes.0.zip: must have as many values for each key: selection.chunks has 2, schedule.batch_size has 1
runs: {a: {}}
axes: [{runs: [a], grid: {selection.chunks: [4, 4]}}]
=> 2: axes.0: duplicate point 'a chunks=4': give each point once
runs: {a: {}}
axes:
- {runs: [a], grid: {selection.chunks: [4]}}
- {runs: [a], cases: [{selection: {chunks: 8}}]}
=> 4: axes.1: 'a' already has 'selection.chunks' from axes.0
runs: {a: {}}
axes:
- runs: [a]
  cases:
  - selection.chunks: 4
  - selection.chunks: 0
=> 6: axes.0.cases.1.selection.chunks: must be greater than 0, not 0
""",
    "dependencies": """
runs:
  teacher: {}
  a: {needs: [techer]}
=> 3: runs.a.needs: no run 'techer': did you mean 'teacher'?
runs: {a: {needs: [b]}, b: {needs: [c]}, c: {needs: [a]}}
axes: [{runs: [a], grid: {optimizer.beta2: [0.9]}}]
=> 1: runs.a.needs: dependencies form a cycle: a → b → c → a
runs: {a: {selection: {rule: joint, reference: a}}}
=> 1: runs.a.selection.reference: dependencies form a cycle: a → a
runs: {r: {}, a: {selection: {rule: joint, reference: r}}}
axes: [{runs: [r], grid: {optimizer.beta2: [0.1, 0.2, 0.3]}}]
=> 1: runs.a.selection.reference: 'r' is 3 runs ('r beta2=0.1', 'r beta2=0.2', 'r beta2=0.3'): put this run
runs: {r: {}, a: {selection: {rule: joint, reference: r}}}
axes:
- {runs: [r], grid: {optimizer.beta2: [0.9]}}
- {runs: [a], grid: {optimizer.beta2: [0.9, 0.99]}}
=> 1: runs.a.selection.reference: no run 'r' with optimizer.beta2=0.99: give it the same values
""",
    "reports": """
runs: {a: {}}
reports: [{kind: [a]}]
=> 2: reports.0.kind: no report ['a']: known:
runs: {uniform: {}}
reports: [curves: {runs: [uniform, unifrom]}]
=> 2: reports.0.runs.1: no run 'unifrom': did you mean 'uniform'?
runs: {uniform: {}}
reports: [curves: {runs: []}]
=> 2: reports.0.runs:
runs: {a: {}}
reports:
- {kind: curves, effort: flop}
=> 3: reports.0.effort: 'flop' is not valid: did you mean 'flops'? (valid: examples_seen, flops,
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
=> 6: resources.paralel: unknown key: did you mean 'parallel'?
runs:
  a: {schedule.batch_size: 0, optimizer.beta2: 2}
  fine: {}
  b: {selection: {rule: joint}}
=> 2: runs.a.optimizer.beta2: must be less than 1, not 2
=> 2: runs.a.schedule.batch_size: must be greater than 0, not 0
=> 4: runs.b.selection: rule 'joint' by 'learnability' needs a reference
runs:
  reference: {}
  joint: {selection: {rule: joint, reference: refrence}}
  tuned: {needs: [refrence]}
  same: {match: {flops: jiont}}
axes: [{runs: [jont], grid: {selection.chunks: [4]}}]
claims: [{statement: s, of: joint chunks=4, above: unifrom}]
reports: [table: {baseline: refrnce}]
=> 4: runs.tuned.needs: no run 'refrence': did you mean 'reference'?
=> 5: runs.same.match: no run 'jiont': did you mean 'joint'?
=> 6: axes.0.runs: no run 'jont': did you mean 'joint'?
=> 7: claims.0.above: no run 'unifrom': known:
=> 8: reports.0.baseline: no run 'refrnce': did you mean 'reference'?
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
=> 1: seeds: must be a number of replicates, a list of seeds or {until: decided}, not 'three'
=> 2: question: must be a string, not ['why'] (a list)
=> 5: runs.a.selection.reference: no run 'refrence': did you mean 'reference'?
=> 6: runs.b.needs: must be a list of names of runs
=> 8: axes.0.gird: unknown key: did you mean 'grid'?
=> 10: claims.0: must have exactly one of above, below
=> 11: claims.1.above: no run 'refernce'
=> 13: reports.0.kind: no report 'curvs': did you mean 'curves'?
=> 14: reports.1.cots: pareto has no such option: did you mean 'cost'?
=> 15: reports.2.baseline: no run 'refernce'
=> 16: metrics.x/y.goal: must be max or min
=> 16: metrics.x/z.gaol: unknown key: did you mean 'goal'?
runs: {a: {}, b: {}}
axes:
- {runs: [a, b], grid: {optimizer.beta1: [1.5, 0.9, -1]}}
- {runs: [b], cases: [{loss: sigmoyd}, {loss: sigmoid}]}
=> 3: axes.0.grid.optimizer.beta1: must be less than 1, not 1.5
=> 3: axes.0.grid.optimizer.beta1: must be greater than or equal to 0, not -1
=> 4: axes.1.cases.0.loss: 'sigmoyd' is not valid: did you mean 'sigmoid'?
program: command
runs:
  a: {command: [run, "{rate}", "{widht}"], width: 3}
  b: {command: "", directory: x}
=> 3: runs.a.command: no value for {rate}
=> 3: runs.a.command: no value for {widht}: did you mean 'width'?
=> 4: runs.b.directory: 'directory' is what jestlab gives the command
=> 4: runs.b.command: is empty
studies: {one: {runs: {a: {selection.rul: joint}}, seeds: 0}, two: {runs: {a: {}}, reports: [curvs]}}
=> 1: studies.one.seeds: must be a number of replicates
=> 1: studies.two.reports.0.kind: no report 'curvs'
studies:
  one: {runs: {a: {selection.rul: joint}, b: {loss: sigmod}}}
  two: {runs: {a: {schedule.batch_size: 0}}}
=> 2: studies.one.runs.a.selection.rul: unknown key
=> 2: studies.one.runs.b.loss: 'sigmod' is not valid
=> 3: studies.two.runs.a.schedule.batch_size: must be greater than 0
""",
    # Each of these specs has one mistake, which could cause others.
    "no follow-up errors": """
base: {optimizer.beta1: 3}
runs: {a: {}, b: {}, c: {}}
=> 1: base.optimizer.beta1: must be less than 1
runs: {a: {loss: sigmod}, b: {}}
axes: [{runs: [a], grid: {optimizer.beta1: [0.5]}}]
reports: [table: {baseline: a beta1=0.5}]
claims: [{statement: s, of: a beta1=0.5, above: b}]
=> 1: runs.a.loss: 'sigmod' is not valid
runs: {a: {}, b: {}}
axes: [{runs: [a], gird: {optimizer.beta1: [0.5]}}]
reports: [table: {baseline: a beta1=0.5}]
=> 2: axes.0.gird: unknown key
runs: {joint: {}, b: {}}
axes: [{runs: [jont], grid: {optimizer.beta1: [0.5]}}]
reports: [table: {baseline: joint beta1=0.5}]
=> 2: axes.0.runs: no run 'jont'
runs: {r: {needs: [3]}, a: {selection: {rule: joint, reference: r}}}
=> 1: runs.r.needs: must be a list of names
runs: {r: {}, a: {selection.rule: joint}}
axes: [{runs: [a], gird: {selection.reference: [r]}}]
=> 2: axes.0.gird: unknown key
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
        with pytest.raises(UserError) as caught:
            load(str(file))
        assert str(caught.value).startswith(f"{file}: {message}")


def test_run_names_may_contain_letters_digits_and_some_symbols():
    assert list(Study.parse({"name": "s", "runs": {"JEST++_f0.8-B": {}}}).runs) == ["JEST++_f0.8-B"]


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
    for words in (["plan", "study.yaml", "--json"], ["show", "study.yaml"]):
        done = labs.here(*words)
        assert (done.returncode, done.stdout) == (1, "")
        first, second, last = done.stderr.splitlines()
        assert first == "jestlab: study.yaml:1: sedes: unknown key: did you mean 'seeds'?"
        assert second.startswith("jestlab: study.yaml:2: runs.a.loss: 'sigmod' is not valid")
        assert last == "jestlab: 2 mistakes in study.yaml"


def places(file, *overrides):
    """Return where each error of a spec is: the file, and the path in it."""
    with pytest.raises(UserErrors) as caught:
        load(str(file), overrides=overrides)
    return [line.split(": ")[:2] for line in caught.value.lines[:-1]]


def test_wrong_overrides_are_reported_with_the_other_mistakes(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("runs: {a: {loss: sigmod}, b: {}}\n")
    found = sorted(place for place, _ in places(file, "runs.b.schedule.batch_size=0"))
    assert found == ["--set runs.b.schedule.batch_size", f"{file}:1"]


def test_mistakes_in_a_list_of_studies_name_the_file(tmp_path):
    part = tmp_path / "part.yaml"
    part.write_text("sedes: 1\nruns: {a: {loss: sigmod}}\n")
    (tmp_path / "all.yaml").write_text("studies: [part.yaml]\n")
    found = places(tmp_path / "all.yaml")
    assert [place for place, _ in found] == [f"{part}:1", f"{part}:2"]


def test_mistakes_in_python_specs_have_no_line_numbers(tmp_path):
    file = tmp_path / "study.py"
    file.write_text(
        "SCALES = ('smoke',)\n"
        "def get_config(scale):\n"
        "    return {'runs': {'a': {'loss': 'sigmod'}, 'b': {'selection.rul': 'joint'}}}\n"
    )
    assert places(file) == [[str(file), "runs.b.selection.rul"], [str(file), "runs.a.loss"]]


def test_no_error_says_where_an_object_is_in_memory():
    written = {"name": "s", "runs": {"a": {}}}
    for key in ("score", "seeds", "adopted", "reports", "claims", "metrics", "name", "base", "question"):
        for value in (object(), [object()], {"x": object()}, open):
            with pytest.raises(SpecError) as caught:
                Study.parse(written | {key: value})
            assert " at 0x" not in str(caught.value)
    assert one_line(f"TypeError: {[object()]}") == "TypeError: [<object object>]"
    assert sentence(ValueError(f"no\n {object()} {test_several_errors_read_as_the_first_one}")) == (
        "no <object object> <function test_several_errors_read_as_the_first_one>"
    )


def test_an_error_of_a_file_is_a_sentence_without_a_number():
    long = "x" * 300
    with pytest.raises(OSError) as caught:
        Path(long).stat()
    assert sentence(caught.value) == f"{long}: File name too long"
    assert sentence(OSError(28, "No space left on device")) == "No space left on device"
    assert sentence(OSError("of\nours")) == "of ours"


SCALARS = """
program: command
base: {command: "true"}
runs: {a: {}, b: {n: 1, needs: %s}}
axes: [{runs: %s, grid: {m: [1, 2]}}]
score: %s
adopted: %s
record: {files: %s, packages: %s}
resources: {retry_exit_codes: %s}
reports: [{curves: {runs: %s, score: %s, metrics: %s, highlight: %s}}, {table: {columns: %s, rows: %s}}]
"""


def test_a_value_by_itself_is_a_list_of_one():
    values = ("a", "a", "x/y", "old", "f.txt", "numpy", "3", "a", "x/y", "loss", "a", "score", "a")
    alone = Study.parse({"name": "s", **Document(SCALARS % values).value})
    assert alone == Study.parse({"name": "s", **Document(SCALARS % tuple(f"[{v}]" for v in values)).value})
    assert Study.parse(alone.to_dict()) == alone
    assert Study.parse({"name": "s", "runs": {"a": {}}, "reports": "curves"}).reports[0].kind == "curves"


WRONG: list[Any] = [
    *(3, -1, 0, 1.5, 10**40, -1e9, math.nan, "x", "", "x" * 500, True, None),
    *([], ["x"], [3], [""], [None], [[]], {}, {"a": 1}, {"kind": "zzz"}, {"kind": 3}),
]
OF_PYDANTIC = re.compile(
    r"\b(should|tuple|input|validation|boolean|integer|dictionary|literal|parse)\b| a valid ", re.I
)


@pytest.mark.parametrize("seeds", [0, 100_001, [0, 2**32], [-1]])
def test_an_error_of_seeds_names_their_range(seeds):
    with pytest.raises(SpecError, match=r"\(replicates: 1 to 100,000; seeds: 0 to 4,294,967,295\)"):
        Study.parse({"name": "s", "runs": {"a": {}}, "seeds": seeds})


def test_no_error_is_in_the_words_of_pydantic():
    models = [programs.get(name).schema for name in ("train", "embed", "diagnose", "weights", "score")]
    checked: list[tuple[Any, dict[str, str]]] = [
        (model, {}) for model in (*models, Resources, Record, FigureOptions, Settings) if model
    ]
    checked += [(report_of(kind), {"kind": kind}) for kind in REPORTS]
    seen = 0
    for model, beside in checked:
        for path, _ in walk(fields_of(model)):
            for value in WRONG:
                try:
                    validated(model, {**nested(path, value), **beside})
                except SpecError as error:
                    for one in error.errors:
                        message = one.message.partition(", not ")[0]
                        assert not OF_PYDANTIC.search(message), (model, path, value, one)
                        seen += 1
    assert seen > 1_000


def test_several_errors_read_as_the_first_one():
    with pytest.raises(SpecErrors) as caught:
        Study.parse({"name": "s", "sedes": 1, "runs": {"a": {}}, "seeds": "x"})
    assert str(caught.value) == "sedes: unknown key: did you mean 'seeds'?"
    assert [error.path for error in caught.value.errors] == [("sedes",), ("seeds",)]


def test_mistakes_collects_each_error_once_with_the_path_around_it():
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
