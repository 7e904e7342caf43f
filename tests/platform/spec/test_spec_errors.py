"""Every error of a spec is one line with file, line, place and remedy."""

import textwrap

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.spec import load

CASES = {
    "unknown top-level key": ("sedes: 3\nruns: {a: {}}", ":1: sedes: unknown key: did you mean 'seeds'?"),
    "unknown key in base": (
        "base:\n  model:\n    visoin: {width: 3}\nruns: {a: {}}",
        ":3: base.model.visoin: unknown key: did you mean 'vision'?",
    ),
    "unknown key in a run": (
        "runs:\n  a:\n    selection.rul: joint",
        ":3: runs.a.selection.rul: unknown key: did you mean 'rule'?",
    ),
    "a key at the wrong level": (
        "runs:\n  a: {filtering_ratio: 0.9}",
        ":2: runs.a.filtering_ratio: unknown key: did you mean 'selection.filtering_ratio'?",
    ),
    "a key of another kind of a section": (
        "runs:\n  a: {data.train.kind: shapes, data.train.path: shards}",
        ":2: runs.a.data.train.path: not valid for kind shapes (belongs to folder and reader): "
        "set kind as well",
    ),
    "unknown key on an axis": (
        "runs: {a: {}}\naxes:\n- runs: [a]\n  grid: {selection.chunk: [1]}",
        ":4: axes.0.grid.selection.chunk: unknown key: did you mean 'chunks'?",
    ),
    "unknown key of an axis": (
        "runs: {a: {}}\naxes: [{runs: [a], gird: {selection.chunks: [1]}}]",
        ":2: axes.0.gird: unknown key: did you mean 'grid'?",
    ),
    "an axis of two kinds": (
        "runs: {a: {}}\naxes: [{runs: [a], grid: {seed: [1]}, cases: [{seed: 1}]}]",
        ":2: axes.0: must have exactly one of grid, zip, cases, not grid and cases",
    ),
    "an axis of an unknown run": (
        "runs: {joint: {}}\naxes: [{runs: [jont], grid: {selection.chunks: [1]}}]",
        ":2: axes.0.runs: no run 'jont': did you mean 'joint'?",
    ),
    "axis values that are no list": (
        "runs: {a: {}}\naxes: [{runs: [a], grid: {selection.chunks: 4}}]",
        ":2: axes.0.grid.selection.chunks: must be a list of values, not 4 (a whole number)",
    ),
    "no axis values": (
        "runs: {a: {}}\naxes: [{runs: [a], grid: {selection.chunks: []}}]",
        ":2: axes.0.grid.selection.chunks: has no values: give at least one, or drop the key",
    ),
    "zip of unequal lengths": (
        "runs: {a: {}}\naxes: [{runs: [a], zip: {selection.chunks: [1, 2], schedule.batch_size: [8]}}]",
        ":2: axes.0.zip: must have as many values for each key: selection.chunks has 2, schedule.",
    ),
    "a point twice": (
        "runs: {a: {}}\naxes: [{runs: [a], grid: {selection.chunks: [4, 4]}}]",
        ":2: axes.0: duplicate point 'a chunks=4': give each point once",
    ),
    "a key on two axes": (
        "runs: {a: {}}\naxes:\n- {runs: [a], grid: {selection.chunks: [4]}}\n"
        "- {runs: [a], cases: [{selection: {chunks: 8}}]}",
        ":4: axes.1: 'a' already has 'selection.chunks' from axes.0",
    ),
    "a section that is a value": (
        "base: {selection: joint}\nruns: {a: {}}",
        ":1: base.selection: must be a mapping of rule, rule_options, criterion, "
        "criterion_options, loss, filtering_ratio, chunks, gain, sweeps, concepts, until, reference, "
        "not 'joint'",
    ),
    "a string for a number": (
        "runs:\n  a: {schedule: {batch_size: many}}",
        ":2: runs.a.schedule.batch_size: must be a number, not 'many' (a string)",
    ),
    "true for a number": (
        "runs:\n  a: {schedule: {batch_size: true}}",
        ":2: runs.a.schedule.batch_size: must be a number, not true (true or false)",
    ),
    "a fraction for a whole number": (
        "runs:\n  a: {schedule: {batch_size: 1.5}}",
        ":2: runs.a.schedule.batch_size: must be a whole number, not 1.5",
    ),
    "null for a number": (
        "runs:\n  a: {schedule: {batch_size: null}}",
        ":2: runs.a.schedule.batch_size: must be a number, not null (nothing)",
    ),
    "a value out of range": (
        "base:\n  selection:\n    filtering_ratio: 1.5\nruns: {a: {}}",
        ":3: base.selection.filtering_ratio: must be less than 1, not 1.5",
    ),
    "a value out of range on an axis": (
        "runs: {a: {}}\naxes:\n- runs: [a]\n  cases:\n  - selection.chunks: 4\n  - selection.chunks: 0",
        ":6: axes.0.cases.1.selection.chunks: must be greater than 0, not 0",
    ),
    "an unknown choice": (
        "runs:\n  a: {selection.rule: jiont}",
        ":2: runs.a.selection.rule: 'jiont' is not valid: did you mean 'joint'? "
        "(valid: uniform, independent, joint, greedy, gibbs, concept_diversity, concept_frequency, highest)",
    ),
    "an unknown kind": (
        "runs:\n  a: {data.train.kind: foldr}",
        ":2: runs.a.data.train: unknown kind 'foldr': did you mean 'folder'? (valid: shapes, folder, reader)",
    ),
    "a key of another kind": (
        "base: {data.train: {kind: folder, path: /d}}\nruns:\n  a: {data.train.shard_size: 4}",
        ":3: runs.a.data.train.shard_size: unknown key: known: digest, examples, kind, path",
    ),
    "a missing value": (
        "runs:\n  a: {data.train: {kind: folder}}",
        ":2: runs.a.data.train.path: is missing",
    ),
    "fields that do not fit": (
        "base:\n  model: {vision: {patch_size: 5}}\nruns: {a: {}}",
        ":2: base.model.vision: patch_size 5 does not divide image_size 16",
    ),
    "fields of different sections that do not fit": (
        "base: {schedule.batch_size: 8}\nruns:\n  r: {}\n"
        "  a: {selection: {rule: joint, reference: r, chunks: 16}}",
        ":4: runs.a: selection.chunks 16 is above schedule.batch_size 8",
    ),
    "a joint run without a reference": (
        "runs:\n  a: {selection.rule: joint}",
        ":2: runs.a.selection: rule 'joint' by 'learnability' needs a reference: set selection.reference",
    ),
    "an unknown reference": (
        "runs:\n  reference: {}\n  a: {selection: {rule: joint, reference: refrence}}",
        ":3: runs.a.selection.reference: no run 'refrence': did you mean 'reference'?",
    ),
    "an unknown need": (
        "runs:\n  teacher: {}\n  a: {needs: [techer]}",
        ":3: runs.a.needs: no run 'techer': did you mean 'teacher'?",
    ),
    "a need that is not a name": (
        "runs:\n  a: {needs: [3]}",
        ":2: runs.a.needs: must be a list of names of runs",
    ),
    "a cycle": (
        "runs:\n  a: {needs: [b]}\n  b: {needs: [c]}\n  c: {needs: [a]}",
        ":2: runs.a.needs: dependencies form a cycle: a → b → c → a",
    ),
    "a run that needs itself": (
        "runs:\n  a: {selection: {rule: joint, reference: a}}",
        ":2: runs.a.selection.reference: dependencies form a cycle: a → a",
    ),
    "an ambiguous need": (
        "runs:\n  r: {}\n  a: {selection: {rule: joint, reference: r}}\n"
        "axes: [{runs: [r], grid: {schedule.examples_seen: [1, 2]}}]",
        ":3: runs.a.selection.reference: 'r' is 2 runs ('r examples_seen=1', 'r examples_seen=2'): "
        "put this run on their axis too (schedule.examples_seen), or name a run without it",
    ),
    "a need without the value": (
        "runs:\n  r: {}\n  a: {selection: {rule: joint, reference: r}}\n"
        "axes:\n- {runs: [r], grid: {optimizer.beta2: [0.9]}}\n"
        "- {runs: [a], grid: {optimizer.beta2: [0.9, 0.99]}}",
        ":3: runs.a.selection.reference: no run 'r' with optimizer.beta2=0.99: give it the same values",
    ),
    "no runs": ("question: why", ": runs: is missing"),
    "empty runs": ("runs: {}", ":1: runs: must be a mapping from names to overrides of the base, not {}"),
    "runs in a list": (
        "runs: [a]",
        ":1: runs: must be a mapping from names to overrides of the base, not ['a']",
    ),
    "a run that is a value": (
        "runs: {a: 3}",
        ":1: runs.a: must be a mapping of overrides of the base, not 3",
    ),
    "a path for a name": ("runs: {../a: {}}", ":1: runs: invalid name '../a': expected at most 80 letters"),
    "dots for a name": ("runs: {a..b: {}}", ":1: runs: invalid name 'a..b': expected"),
    "a long name": ("runs: {%s: {}}" % ("a" * 81), "expected at most 80 letters"),
    "a name that looks like an option": ("runs: {-a: {}}", ":1: runs: invalid name '-a'"),
    "a number for a name": ("runs: {1: {}}", ":1: runs: invalid name 1: expected"),
    "seeds that are a string": (
        "seeds: three\nruns: {a: {}}",
        ":1: seeds: must be a number of replicates, a list of seeds or {until: decided}, not 'three'",
    ),
    "seeds until something else": (
        "seeds: {until: bored}\nruns: {a: {}}",
        ":1: seeds.until: must be decided, not 'bored'",
    ),
    "a family of its own": (
        "family: holm\nruns: {a: {}}",
        ":1: family: must be {error: 0.05} or none, not 'holm'",
    ),
    "no seeds": ("seeds: 0\nruns: {a: {}}", ":1: seeds: must be a number of replicates"),
    "a negative seed": ("seeds: [-1]\nruns: {a: {}}", ":1: seeds: must be a number of replicates"),
    "a seed twice": ("seeds: [1, 1]\nruns: {a: {}}", ":1: seeds: duplicate seed in [1, 1]"),
    "a seed in the base": ("base: {seed: 1}\nruns: {a: {}}", ":1: base.seed: replicates are set by `seeds`"),
    "a seed on an axis": (
        "runs: {a: {}}\naxes: [{runs: [a], grid: {seed: [1]}}]",
        ":2: axes.0.grid.seed: replicates",
    ),
    "an unknown report": (
        "runs: {a: {}}\nreports: [curvs]",
        ":2: reports.0.kind: no report 'curvs': did you mean 'curves'?",
    ),
    "a report whose kind is a list": (
        "runs: {a: {}}\nreports: [{kind: [a]}]",
        ":2: reports.0.kind: no report ['a']",
    ),
    "a report without a kind": (
        "runs: {a: {}}\nreports: [{baseline: a}]",
        ":2: reports.0.kind: no report null",
    ),
    "an unknown option of a report": (
        "runs: {a: {}}\nreports:\n- {kind: table, basline: a}",
        ":3: reports.0.basline: table has no such option: did you mean 'baseline'?",
    ),
    "a baseline that is not a run": (
        "runs: {uniform: {}}\nreports:\n- {kind: table, baseline: unifrom}",
        ":3: reports.0.baseline: no run 'unifrom': did you mean 'uniform'?",
    ),
    "a report of an unknown run": (
        "runs: {uniform: {}}\nreports:\n- curves: {runs: [uniform, unifrom]}",
        ":3: reports.0.runs.1: no run 'unifrom': did you mean 'uniform'?",
    ),
    "a report of no run": (
        "runs: {uniform: {}}\nreports:\n- curves: {runs: []}",
        ":3: reports.0.runs:",
    ),
    "an unknown value of a report": (
        "runs: {a: {}}\nreports:\n- {kind: curves, effort: flop}",
        ":3: reports.0.effort: 'flop' is not valid: did you mean 'flops'? (valid: examples_seen, flops, "
        "seconds, chip_hours, steps)",
    ),
    "an unknown resource": (
        "runs: {a: {}}\nresources: {paralel: 3}",
        ":2: resources.paralel: unknown key: did you mean 'parallel'?",
    ),
    "no resources at all": (
        "runs: {a: {}}\nresources: {parallel: 0}",
        ":2: resources.parallel: must be greater than 0, not 0",
    ),
    "an unknown program": (
        "program: trian\nruns: {a: {}}",
        ":1: program: no program 'trian': did you mean 'train'?",
    ),
    "an unknown program of a run": (
        "runs: {a: {program: 'no_such_module:main'}}",
        ":1: runs.a.program: no module 'no_such_module' for 'no_such_module:main'",
    ),
    "a question that is not a string": (
        "question: [1]\nruns: {a: {}}",
        ":1: question: must be a string, not [1] (a list)",
    ),
    "an empty file": ("", ": a spec is a mapping of name, question,"),
    "a list": ("- a", ": a spec is a mapping of name, question,"),
    "a value both nested and dotted": (
        "base:\n  schedule: {batch_size: 8}\n  schedule.batch_size: 16\nruns: {a: {}}",
        "base.schedule.batch_size: is given twice in one mapping, nested and dotted",
    ),
    "a number without end": (
        "runs: {a: {optimizer.learning_rate: .inf}}",
        ":1: runs.a.optimizer.learning_rate: must be a finite number, not inf",
    ),
    "deep nesting": ("runs: {a: {%s" % ("b: {" * 3_000), "nested too deeply for a spec"),
}


@pytest.mark.parametrize(("text", "message"), CASES.values(), ids=CASES.keys())
def test_one_line_names_place_and_remedy(tmp_path, text, message):
    file = tmp_path / "study.yaml"
    file.write_text(textwrap.dedent(text))
    with pytest.raises(UserError) as caught:
        load(str(file))
    line = str(caught.value)
    assert line.startswith(str(file) + ":")
    assert message in line
    assert "\n" not in line


def test_a_run_name_may_have_letters_digits_and_a_few_symbols(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("runs: {JEST++_f0.8-B: {}}")
    assert list(load(str(file)).runs) == ["JEST++_f0.8-B"]
