"""The reference of keys: complete, documented in the words of specs, with valid examples."""

import re

import pytest
from pydantic import BaseModel

from jestlab.analysis.claims import parse_claims
from jestlab.models.config import DiagnoseConfig, EmbedConfig, ScoreConfig, TrainConfig, WeightsConfig
from jestlab.platform.errors import UserError
from jestlab.platform.spec import StudySpec
from jestlab.platform.spec.fields import fields_of
from jestlab.platform.spec.keys import config_keys, find, spec_keys
from jestlab.platform.spec.options import REPORTS
from jestlab.platform.spec.resources import Resources, SlurmOptions
from jestlab.platform.spec.tree import plain

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
    leaves = {".".join(path) for path, part in fields_of(SCHEMAS[program]).walk() if not part.children}
    if program == "weights":  # the architecture is one key there, which the plan fills in
        leaves = {leaf for leaf in leaves if not leaf.startswith("model.")} | {"model"}
    told = {key.path for key in config_keys() if program in key.where}
    assert {path for path in told if "<" not in path} == leaves
    assert len(leaves) > {"train": 85, "embed": 20, "score": 12, "weights": 5, "diagnose": 30}[program]


def test_every_key_of_the_rest_of_a_spec_is_there():
    told = {key.path for key in spec_keys()}
    assert {path for path in told if "." not in path} == StudySpec.model_fields.keys()
    sections: dict[str, type[BaseModel]] = {f"reports.{kind}": report for kind, report in REPORTS.items()}
    sections |= {"resources": Resources, "resources.slurm": SlurmOptions}
    for place, model in sections.items():
        assert {f"{place}.{name}" for name in model.model_fields if name != "kind"} <= told
    claim = {"statement": "s", "of": "a", "within": 1.0, "measure": "m/x", "source": "f", "unless": "u"}
    for comparison in ("above", "below", "better_than", "near"):
        assert parse_claims([{**claim, comparison: "b"}])
        assert {f"claims.<n>.{name}" for name in (*claim, comparison)} <= told


def test_every_key_is_documented():
    """Meanings come from the `Attributes:` section of a class, in the words of specs: null, not None."""
    meaning = re.compile(r'(?!.*(\bNone\b|  ))["A-Za-z].*[.…]')
    of_python = re.compile(r"\b(int|float|str|dict|tuple|bool|None|Any)\b")
    assert [f"{key.path}: {key.meaning!r}" for key in EVERY if not meaning.fullmatch(key.meaning)] == []
    assert [f"{key.path}: {key.type}" for key in EVERY if not key.type or of_python.search(key.type)] == []
    assert [key.path for key in EVERY if not key.where] == []


@pytest.mark.parametrize(
    ("prefix", "first", "number", "type_"),
    [
        ("selection", "selection.rule", 12, None),
        ("selection.rule", "selection.rule", 1, None),
        ("runs.joint.selection.chunks", "selection.chunks", 1, "integer > 0"),
        ("base.selection", "selection.rule", 12, None),
        ("axes.0.grid.selection.filtering_ratio", "selection.filtering_ratio", 1, "number >= 0, < 1"),
        ("selection.reference", "selection.reference", 1, "name of a run or null"),
        ("runs.joint.needs", "runs.<run>.needs", 1, None),
        ("claims.of", "claims.<n>.of", 6, None),
        ("claims.3.of.minus", "claims.<n>.of.minus", 1, None),
        ("reports.curves.runs", "reports.curves.runs", 1, "list[string]"),
        ("metrics.wiki/perplexity.scale", "metrics.<name>.scale", 1, "linear or log"),
        ("metrics.wiki/perplexity.goal", "metrics.<name>.goal", 1, None),
        ("seeds", "seeds", 1, None),
    ],
)
def test_finds_keys_as_people_write_them_with_types_in_the_terms_of_a_spec(prefix, first, number, type_):
    found = find(prefix)
    assert (found[0].path, len(found)) == (first, number)
    assert type_ in (None, found[0].type)


@pytest.mark.parametrize(
    ("prefix", "nearest"), [("seletion", "selection"), ("selection.rul", "selection.rule")]
)
def test_unknown_keys_name_the_nearest(prefix, nearest):
    with pytest.raises(UserError, match=rf"no key '{prefix}': did you mean '{nearest}'\?"):
        find(prefix)


def test_the_identity_of_keys_is_that_of_the_config():
    plainly = TrainConfig().identity()
    for path, value in (("runtime.microbatches", 2), ("data.train.seed", 5), ("data.train.noise.blank", 0.2)):
        [key] = [key for key in find(path) if "train" in key.where]
        changed = TrainConfig.model_validate(plain({path: value})).identity()
        assert (changed != plainly) == key.identity == (path != "runtime.microbatches")
    assert [key.identity for key in find("data.train.path")] == [False, False]
