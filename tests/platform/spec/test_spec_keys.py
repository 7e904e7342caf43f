"""The reference of keys: complete, documented, in a spec writer's words, with examples that are valid."""

import re
from typing import Any

import pytest

from jestlab.analysis.claims import Claim, parse_claims
from jestlab.models.config import DiagnoseConfig, EmbedConfig, ScoreConfig, TrainConfig, WeightsConfig
from jestlab.platform.errors import UserError
from jestlab.platform.spec import Study
from jestlab.platform.spec.config_tree import check, fields_of, plain, walk
from jestlab.platform.spec.keys import config_keys, find, markdown, spec_keys, together
from jestlab.platform.spec.reports import REPORTS
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.slurm import Slurm
from jestlab.platform.spec.yaml import Document

SCHEMAS = {
    "train": TrainConfig,
    "embed": EmbedConfig,
    "score": ScoreConfig,
    "weights": WeightsConfig,
    "diagnose": DiagnoseConfig,
}
EVERY = [*spec_keys(), *config_keys()]


@pytest.mark.parametrize("program", SCHEMAS)
def test_every_key_of_a_config_is_there_with_the_programs_that_have_it(program):
    leaves = {".".join(path) for path, part in walk(fields_of(SCHEMAS[program])) if not part.children}
    if program == "weights":  # the architecture is one key there, which the plan fills in
        leaves = {leaf for leaf in leaves if not leaf.startswith("model.")} | {"model"}
    told = {key.path for key in config_keys() if program in key.where}
    assert {path for path in told if "<" not in path} == leaves
    assert len(leaves) > {"train": 85, "embed": 20, "score": 12, "weights": 5, "diagnose": 30}[program]


def test_every_key_of_the_rest_of_a_spec_is_there():
    told = {key.path for key in spec_keys()}
    assert {path for path in told if "." not in path} == Study.model_fields.keys() - {"resources", "record"}
    assert {f"resources.{name}" for name in Resources.model_fields if name != "slurm"} <= told
    assert {f"resources.slurm.{name}" for name in Slurm.model_fields} <= told
    for kind, report in REPORTS.items():
        assert {f"reports.{kind}.{name}" for name in report.model_fields if name != "kind"} <= told
    claim = {"statement": "s", "of": "a", "within": 1.0, "measure": "m/x", "source": "f", "unless": "u"}
    for comparison in ("above", "below", "better_than", "near"):
        [parsed] = parse_claims([{**claim, comparison: "b"}])
        assert isinstance(parsed, Claim)
        assert {f"claims.<n>.{name}" for name in (*claim, comparison)} <= told


@pytest.mark.parametrize("key", EVERY, ids=lambda key: f"{key.path}-{'-'.join(key.where)}"[:70])
def test_a_key_is_documented(key):
    """Its meaning stands in the `Attributes:` section of its class, for spec writers: null is not None."""
    assert re.fullmatch(r'["A-Za-z].*[.…]', key.meaning), f"document {key.path} in its class: {key.meaning!r}"
    assert not re.search(r"\bNone\b", key.meaning), key.meaning
    assert key.type and key.where
    assert "  " not in key.meaning
    assert not re.search(r"\b(int|float|str|dict|tuple|bool|None|Any)\b", key.type), key.type


def test_only_what_the_plan_fills_in_has_no_example():
    without = {key.path for key in config_keys() if not key.example}
    assert {path for path in without if not path.endswith("digest")} == {"code"}


@pytest.mark.parametrize(
    "key",
    [key for key in config_keys() if key.example],
    ids=lambda key: f"{key.path}-{'-'.join(key.where)}"[:70],
)
def test_the_example_of_a_config_key_is_valid_where_it_is_used(key):
    written = Document(key.example).value["base"]
    for program in key.where:
        if program in SCHEMAS and "<" not in key.path:
            check(plain(written), fields_of(SCHEMAS[program]), ("base",))
    assert key.path in written


@pytest.mark.parametrize("key", [key for key in spec_keys() if key.example], ids=lambda key: key.path)
def test_the_example_of_a_spec_key_is_valid(key):
    written = Document(key.example).value
    runs: dict[str, dict[str, Any]] = {name: {} for name in ("uniform", "joint", "independent", "reference")}
    study = {"name": "s", "runs": runs, **written}
    if "studies" in written:
        study = {"name": "s", "studies": {"a": {"runs": {"b": {}}}}}
    if key.path == "runs.<run>.needs":
        study["program"] = "json:dumps"
    Study.parse(study)


def other(key):
    """Return another value than the default of a key."""
    simple = {"true": False, "false": True, "null": 7, "[noise, label]": ["noise"]}
    if key.default in simple:
        return simple[key.default]
    others = [choice for choice in key.choices if choice != key.default]
    if others:
        return others[0]
    number = float(key.default)
    return number / 2 if number < 1 else int(number) + 1


@pytest.mark.parametrize("program", ["train", "embed", "diagnose"])
def test_identity_is_told_as_it_is(program):
    required = {"embed": {"reference": "a"}, "diagnose": {"learner": "a", "reference": "b"}}.get(program, {})
    schema: Any = SCHEMAS[program]
    plainly = schema.model_validate(required).identity()
    keys = [key for key in config_keys() if program in key.where and key.path.startswith("runtime.")]
    assert keys
    for key in keys:
        changed = schema.model_validate({**required, **plain({key.path: other(key)})})
        assert changed.identity() == plainly
        assert not key.identity
    for path, value in (("data.train.seed", 5), ("data.train.noise.blank", 0.2)):
        [key] = [key for key in find(path) if program in key.where]
        changed = schema.model_validate({**required, **plain({path: value})})
        assert (changed.identity() != plainly) == key.identity is True


def test_paths_whose_content_counts_are_told_as_without_identity():
    def identity(path):
        train = {"kind": "folder", "path": path, "digest": "0" * 64, "examples": 5}
        return TrainConfig.model_validate({"data": {"train": train}}).identity()

    assert identity("a") == identity("b")
    assert [key.identity for key in find("data.train.path")] == [False, False]
    assert not find("data.train.examples")[1].identity


@pytest.mark.parametrize(
    ("prefix", "first", "count"),
    [
        ("selection", "selection.rule", 12),
        ("selection.rule", "selection.rule", 1),
        ("runs.joint.selection.rule", "selection.rule", 1),
        ("base.selection", "selection.rule", 12),
        ("axes.0.grid.selection.rule", "selection.rule", 1),
        ("runs.joint.needs", "runs.<run>.needs", 1),
        ("claims.of", "claims.<n>.of", 4),
        ("claims.3.of.minus", "claims.<n>.of.minus", 1),
        ("reports.table.baseline", "reports.table.baseline", 1),
        ("metrics.wiki/perplexity.goal", "metrics.<name>.goal", 1),
        ("seeds", "seeds", 1),
    ],
)
def test_keys_are_found_as_people_write_them(prefix, first, count):
    found = find(prefix)
    assert (found[0].path, len(found)) == (first, count)


@pytest.mark.parametrize(
    ("prefix", "near"),
    [
        ("seletion", "'selection'"),
        ("selection.rul", "'selection.rule'"),
        ("optimizer.lerning_rate", "learning_rate'"),
    ],
)
def test_an_unknown_key_names_the_nearest(prefix, near):
    with pytest.raises(UserError, match=rf"no key '{prefix}': did you mean .*{near}\?"):
        find(prefix)


def test_options_that_reports_share_are_listed_once():
    baselines = [key for key in together(spec_keys()) if key.path.endswith(".baseline")]
    assert baselines[0].path == "reports.*.baseline"
    assert {"table", "curves", "pareto", "batch_size"} <= set(baselines[0].where)
    assert [key.path for key in together(find("reports.table.baseline"))] == ["reports.table.baseline"]


@pytest.mark.parametrize(("which", "keys"), [("config", config_keys()), ("spec", spec_keys())])
def test_markdown_has_a_row_for_each_key_and_tables_that_are_whole(which, keys):
    text = markdown(which)
    there, section = set(), ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"## `?([^`]+)`?", line):
            section = heading[1]
        elif row := re.match(r"\| `([^`]+)` \|", line):
            there |= {row[1], f"{section}.{row[1]}"}  # a heading says what its keys begin with
    for key in keys:
        assert {key.path, re.sub(r"^reports\.\w+\.", "reports.*.", key.path)} & there
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert sorted(set(headings)) == sorted(headings)
    assert all(line.startswith("## ") for line in headings)
