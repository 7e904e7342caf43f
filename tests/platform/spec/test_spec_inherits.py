"""What runs of another program inherit from a study's base: `embed` embeds the learners' data."""

from typing import Any

from jestlab.models.config import SHAPES_GENERATOR, Data, EmbedConfig
from jestlab.platform import programs
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import StudySpec, load
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.overrides import apply, parse

DATA = {"train": {"examples": 640, "image_size": 24}, "filter": "similarity > 0.1"}
CACHE = {"program": "embed", "reference": "reference"}
JOINT = {"selection.rule": "joint", "selection.reference": "cache"}
RUNS = {"joint": JOINT, "cache": CACHE, "reference": {"data.filter": "similarity > 0.3"}}


def planned(runs=RUNS, **written):
    return {run.label: run for run in plan(StudySpec.parse({"name": "s", "runs": runs, **written})).runs}


def test_embed_runs_inherit_the_data_of_the_base():
    runs = planned(base={"data": DATA, "optimizer.beta2": 0.5})
    assert list(runs) == ["reference", "cache", "joint"]
    assert runs["cache"].config["data"]["train"]["examples"] == 640
    assert runs["cache"].config["data"] == runs["joint"].config["data"]
    assert "optimizer" not in runs["cache"].config
    assert runs["cache"].needs == {"reference": runs["reference"].fingerprint}
    assert runs["joint"].needs == {"selection.reference": runs["cache"].fingerprint}


def test_neither_the_benchmark_nor_how_it_runs_is_part_of_its_identity():
    def identity(base=None, **changes):
        return planned(RUNS | {"cache": CACHE | changes}, base=base or {})["cache"].fingerprint

    assert identity() == identity(**{"data.benchmark.retrieval_examples": 64, "runtime.batch_size": 7})
    assert len({identity(), identity({"data.train.examples": 640}), identity(precision="float16")}) == 3


def test_overrides_reach_it_through_the_base_and_by_its_name():
    study = StudySpec.parse({"name": "s", "runs": RUNS, "base": {"data.train": {"examples": 640}}})
    overrides = map(parse, ["base.data.train.image_size=24", "runs.cache.data.filter=aesthetic > 4"])
    data = {run.name: run.config["data"] for run in plan(apply(study, [*overrides])).runs}
    assert data["cache"]["train"] == data["joint"]["train"]
    assert data["cache"]["train"]["image_size"] == 24
    assert data["cache"]["train"]["examples"] == 640
    assert (data["cache"]["filter"], data["joint"]["filter"]) == ("aesthetic > 4", None)


def test_a_relative_folder_in_the_base_is_anchored_whoever_inherits_it(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "base: {data.train: {kind: folder, path: web}}\n"
        "runs: {own: {program: 'json:dumps'}, cache: {program: embed, reference: own}}\n"
    )
    config: Any = expand(load(str(path)))[1].config
    assert config.data.train.path == str(tmp_path / "web")


def test_a_section_of_the_same_name_and_another_type_is_not_inherited():
    """A user's own program may call anything `data`."""
    runs = planned(
        {"own": {}, "cache": {**CACHE, "reference": "own"}},
        program="json:dumps",
        base={"data": "a.csv", "model": {}},  # with towers, as a reference has them
    )
    assert runs["own"].config["data"] == "a.csv"
    assert runs["cache"].config["data"]["train"]["kind"] == "shapes"
    train, own = programs.get("train"), programs.get("json:dumps")
    assert train.inherited({"data": {}, "x": 1}, train) == {"data": {}, "x": 1}
    assert train.inherited({"data": {}}, own) == own.inherited({"data": {}}, train) == {}


def test_identity_of_a_cache_names_the_reference_and_the_data():
    config = EmbedConfig(reference="r")
    assert config.identity() == {
        "reference": "r",
        "data": {"train": {"seed": 0, "generator": SHAPES_GENERATOR}},
    }
    shared = config.model_copy(update={"data": Data.model_validate({"train": {"seed": 0}})})
    assert shared.identity() == config.identity()
