"""The reference of keys: complete, documented in the words of specs, with valid examples."""

import re

import jsonschema
import pytest

from jestlab.analysis.claims import Claim, parse_claims
from jestlab.models.config import DiagnoseConfig, EmbedConfig, ScoreConfig, TrainConfig, WeightsConfig
from jestlab.platform.errors import UserError
from jestlab.platform.registry import study_names
from jestlab.platform.spec import StudySpec, load
from jestlab.platform.spec.fields import fields_of
from jestlab.platform.spec.keys import config_keys, find, spec_keys, spec_schema
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
    assert {f"resources.{name}" for name in Resources.model_fields} <= told
    assert {f"resources.slurm.{name}" for name in SlurmOptions.model_fields} <= told
    for kind, report in REPORTS.items():
        assert {f"reports.{kind}.{name}" for name in report.model_fields if name != "kind"} <= told
    claim = {"statement": "s", "of": "a", "within": 1.0, "measure": "m/x", "source": "f", "unless": "u"}
    for comparison in ("above", "below", "better_than", "near"):
        [parsed] = parse_claims([{**claim, comparison: "b"}])
        assert isinstance(parsed, Claim)
        assert {f"claims.<n>.{name}" for name in (*claim, comparison)} <= told


def test_every_key_is_documented():
    """Meanings come from the `Attributes:` section of a class, in the words of specs: null, not None."""
    meaning = re.compile(r'(?!.*(\bNone\b|  ))["A-Za-z].*[.…]')
    of_python = re.compile(r"\b(int|float|str|dict|tuple|bool|None|Any)\b")
    assert [f"{key.path}: {key.meaning!r}" for key in EVERY if not meaning.fullmatch(key.meaning)] == []
    assert [f"{key.path}: {key.type}" for key in EVERY if not key.type or of_python.search(key.type)] == []
    assert [key.path for key in EVERY if not key.where] == []


def test_types_are_in_the_terms_of_a_spec():
    types = {
        "selection.chunks": "integer > 0",
        "selection.filtering_ratio": "number >= 0, < 1",
        "selection.reference": "name of a run or null",
        "reports.curves.runs": "list[string]",
        "reports.curves.scale": "linear, log or null",
    }
    assert {path: find(path)[0].type for path in types} == types
    assert find("question")[0].where == ("study",)


def test_finds_keys_as_people_write_them():
    expected = {
        "selection": ("selection.rule", 12),
        "selection.rule": ("selection.rule", 1),
        "runs.joint.selection.rule": ("selection.rule", 1),
        "base.selection": ("selection.rule", 12),
        "axes.0.grid.selection.rule": ("selection.rule", 1),
        "runs.joint.needs": ("runs.<run>.needs", 1),
        "claims.of": ("claims.<n>.of", 4),
        "claims.3.of.minus": ("claims.<n>.of.minus", 1),
        "reports.table.baseline": ("reports.table.baseline", 1),
        "metrics.wiki/perplexity.goal": ("metrics.<name>.goal", 1),
        "seeds": ("seeds", 1),
    }
    assert {prefix: (find(prefix)[0].path, len(find(prefix))) for prefix in expected} == expected


def test_unknown_keys_name_the_nearest():
    for prefix, nearest in (("seletion", "selection"), ("selection.rul", "selection.rule")):
        with pytest.raises(UserError, match=rf"no key '{prefix}': did you mean '{nearest}'\?"):
            find(prefix)


@pytest.fixture(scope="module")
def invalid():
    validator = jsonschema.Draft202012Validator(spec_schema("train"))
    return lambda spec: sorted(
        ".".join(map(str, error.absolute_path)) for error in validator.iter_errors(spec)
    )


def test_the_json_schema_accepts_studies_and_rejects_typing_errors(invalid):
    assert [name for name in study_names() if invalid(load(name).to_dict())] == []
    written = {
        "runs": {"a": {"model.vision.width": 8, "selection": {"rul": "joint"}}, "b": {"needs": "a"}},
        "sedes": 3,
        "seeds": 3,
        "reports": ["curves", {"table": {"baseline": "a"}}, "curvs"],
        "axes": {"a": {"grid": {"loss": ["softmax"]}}},
        "base": {"schedule": {"batch_size": "x"}},
    }
    assert invalid(written) == ["", "base.schedule.batch_size", "reports", "runs.a.selection"]
    jsonschema.Draft202012Validator(spec_schema("command")).validate({"runs": {"a": {"command": ["true"]}}})
    with pytest.raises(UserError, match="no program 'trian': did you mean 'train'"):
        spec_schema("trian")


def test_the_identity_of_keys_is_that_of_the_config():
    plainly = TrainConfig().identity()
    for path, value in (("runtime.microbatches", 2), ("data.train.seed", 5), ("data.train.noise.blank", 0.2)):
        [key] = [key for key in find(path) if "train" in key.where]
        changed = TrainConfig.model_validate(plain({path: value})).identity()
        assert (changed != plainly) == key.identity == (path != "runtime.microbatches")
    assert [key.identity for key in find("data.train.path")] == [False, False]
