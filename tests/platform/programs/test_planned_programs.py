"""Programs and methods in plans: order, identity, and price."""

from typing import Any

import plans_support as plans
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_support import TOWERS

from jestlab.analysis.costs import Cost
from jestlab.analysis.flops import loss_flops
from jestlab.models.config import EmbedConfig, ScoreConfig, TrainConfig, TwoTowers
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import Plan, PlannedRun, plan
from jestlab.platform.programs import Price, pricing
from jestlab.platform.spec import StudySpec, load
from jestlab.platform.spec.expand import expand

CACHE = {"program": "embed", "reference": "reference"}
DIAGNOSIS = plans.TINY_DIAGNOSIS | {"learner": "uniform", "reference": "reference"}
E = TOWERS["embedding_dim"]


def planned(base: dict[str, Any] | None = None, **runs: Any) -> Plan:
    """Plan runs besides a reference, on 1,024 examples."""
    base = {"model": TOWERS, "data.train.examples": 1_024, **(base or {"schedule.batch_size": 16})}
    runs = {"reference": {"initialization": 1}, **runs}
    return plan(StudySpec.parse({"name": "s", "base": base, "runs": runs}))


def by_name(**parts):
    return {run.name: run for run in planned(**parts).runs}


# ---- embed


def test_embeddings_are_made_between_the_reference_and_its_learners():
    joint = {"selection": {"rule": "joint", "reference": "cache"}}
    runs = by_name(joint=joint, cache=CACHE, uniform={})
    assert list(runs).index("reference") < list(runs).index("cache") < list(runs).index("joint")
    assert runs["joint"].needs == {"selection.reference": runs["cache"].fingerprint}
    assert runs["joint"].price.cost.reference_scoring == 0
    assert runs["cache"].price.total == 0
    assert runs["cache"].price.cost.reference_scoring > 0
    assert planned(cache=CACHE, joint=joint).needed == {"reference", "cache"}


def test_a_folder_is_counted_and_identified_by_what_it_holds(tmp_path):
    nowhere, empty = ({"kind": "folder", "path": str(tmp_path / name)} for name in ("nowhere", "empty"))
    (tmp_path / "empty").mkdir()
    web = {"kind": "folder", "path": plans.write_shard(tmp_path / "web", "one", "two", "three")}
    runs = by_name(cache=CACHE | {"data": {"train": web, "benchmark": nowhere}})
    data = runs["cache"].config["data"]
    assert len(data["train"]["digest"]) == 64
    assert data["benchmark"]["digest"] is None  # it has no use for it
    learner = runs["reference"].price
    towers = learner.cost.image_tower + learner.cost.text_tower
    assert runs["cache"].price.cost.reference_scoring == pytest.approx(3 * towers / (3 * learner.examples))
    for changes, message in (
        ({"train": nowhere}, r"^runs.cache: data.train.path: no folder .*nowhere"),
        ({"train": empty}, r"^runs.cache: .*empty: holds no .tar shards"),
        ({"filter": "similarity > 0.3"}, r"^runs.cache: data.filter: .*web has no metadata column 'similar"),
        ({"recaption": "key == 'a'"}, r"^runs.cache: data.recaption: .*web has no metadata column"),
    ):
        with pytest.raises(UserError, match=message):
            planned(cache=CACHE | {"data": {"train": web} | changes})


def test_a_column_that_the_folder_has_and_scores_have_is_refused(tmp_path):
    path = plans.write_shard(tmp_path / "web", "one", "two")
    table = pa.table({"key": ["000", "001"], "clip_score": [0.1, 0.4]})
    pq.write_table(table, tmp_path / "web" / "00000.parquet")
    filtered = {"train": {"kind": "folder", "path": path}, "filter": "clip_score > 0.3", "scores": "scores"}
    with pytest.raises(
        UserError, match=r"data\.filter: .*web has a column 'clip_score', and so has data\.scores"
    ):
        planned(cache=CACHE, scores={"program": "score", "embeddings": "cache"}, u={"data": filtered})


def test_the_price_is_unknown_where_the_towers_or_the_data_are(tmp_path):
    config = EmbedConfig(reference="r")
    assert pricing.price_embed(config, {"reference": {"a": "user's"}}) is None
    towers = expand(load("quickstart"))[0].config
    assert pricing.price_embed(config, {"reference": towers}) is not None
    elsewhere = {"train": {"kind": "folder", "path": str(tmp_path / "pod"), "digest": "0" * 64}}
    there = EmbedConfig.model_validate({"reference": "r", "data": elsewhere})
    assert pricing.price_embed(there, {"reference": towers}) is None


# ---- score


SCORES = {
    "program": "score",
    "embeddings": "cache",
    "target": "targets",
    "negcliploss": {"batch_size": 128, "repeats": 2},
}
SCORED: dict[str, Any] = {
    "cache": CACHE,
    "targets": CACHE | {"data.train": {"examples": 64, "seed": 9}},
    "scores": SCORES,
    "filtered": {"data": {"scores": "scores", "filter": "negcliploss_rank > 0.7 and similarity > 0.1"}},
}


def test_scores_are_priced_and_made_before_runs_that_read_them():
    runs = by_name(**SCORED)
    assert list(runs).index("cache") < list(runs).index("scores") < list(runs).index("filtered")
    n, k = 1_024, 32
    found = 4 * 2 * n * 128 * E + 2 * E * (n * k * 21 + n * n // k) + 2 * n * 64 * E
    assert runs["scores"].price.cost.reference_scoring == pytest.approx(found)
    # Scores that nothing reads change neither a run's identity nor what it waits for.
    more = {"uniform": {}, "again": {"data": {"scores": "scores"}}}
    assert len(planned(**SCORED, **more).runs) == len(SCORED) + 2  # with the reference


def test_normsim_counts_only_with_a_target():
    for named, counts in (({}, False), ({"target": "b"}, True)):
        configs = [{"embeddings": "a", "normsim": {"norm": norm}, **named} for norm in (2, "inf")]
        one, other = (ScoreConfig.model_validate(config).identity() for config in configs)
        assert (one != other) == counts


# ---- diagnose


def test_the_diagnosed_learner_is_not_a_reference():
    for learner in ("uniform", "reference"):
        assert planned(uniform={}, diagnosis=DIAGNOSIS | {"learner": learner}).needed == {"reference"}


def test_the_price_is_the_scoring_of_all_candidates_and_what_is_chosen_from_them():
    whole, alone = (
        by_name(uniform={}, diagnosis=DIAGNOSIS | more)["diagnosis"]
        for more in ({}, {"criterion": "hard_learner"})
    )
    scored = 2 * 80 * pricing.forward(TwoTowers.model_validate(TOWERS)).total
    # Of b = 16, once by chunks and once by each of five rules, all followed to the end.
    meetings = 16 + 16 + 4 * 16 + 16 * 16
    selections = 2 + 5
    chosen = 2 * 80 * E * (2 * selections + 4 * meetings)  # for each model
    assert whole.price == Price(Cost(0, 0, 0, scored, 2 * chosen, scored), examples=0)
    assert alone.price == Price(Cost(0, 0, 0, scored, chosen, 0), examples=0)
    assert alone.fingerprint != whole.fingerprint


# ---- methods beside JEST

WIDER = {"vision.width": 32, "text.width": 32, "embedding_dim": 32}
BALANCED = {"rule": "concept_diversity", "concepts": ["label"]}
JOINT = {"rule": "joint", "chunks": 4, "reference": "reference"}


def guided(**runs: Any) -> Plan:
    """Plan runs of 160 examples, with a reference that is wider than the learner, and its cache."""
    base = {"schedule": {"batch_size": 16, "examples_seen": 160}}
    return planned(base=base, reference={"initialization": 1, "model": WIDER}, cache=CACHE, **runs)


def of(changes: dict[str, Any]) -> PlannedRun:
    return guided(run=changes).runs[-1]


def price_of(changes: dict[str, Any]) -> Price:
    price = of(changes).price
    assert price is not None
    return price


def test_a_run_waits_for_a_reference_that_it_looks_at():
    role = "selection.reference"
    for changes, needs in (
        ({"loss": "distilled", role: "reference"}, {role}),
        ({"loss": "drrho", "selection": JOINT}, {role}),
        ({"loss": "softmax", role: "reference"}, set()),
        ({"selection": BALANCED | {"reference": "reference"}}, set()),
        ({"loss": "drrho", "selection": BALANCED | {"reference": "cache"}}, {role}),
        ({"selection": {"rule": "highest", "reference": "cache"}}, {role}),
        ({"selection": {"rule": "highest", "criterion": "hard_learner"}}, set()),
    ):
        assert set(of(changes).needs) == needs, changes


def test_what_a_method_does_not_look_at_does_not_identify_it():
    first = of({"selection": BALANCED}).fingerprint
    for more in ({"gain": 3.0}, {"criterion": "hard_learner"}, {"reference": "cache"}):
        assert of({"selection": BALANCED | more}).fingerprint == first, more
    assert of({"selection": BALANCED | {"concepts": ["size"]}}).fingerprint != first
    joint = of({"selection": JOINT}).fingerprint
    assert of({"selection": JOINT | {"concepts": ["size"]}}).fingerprint == joint
    assert of({"selection": JOINT | {"until": 0.5}}).fingerprint != joint


def test_a_loss_that_compares_is_priced_by_both_widths():
    b, E = 16, 16
    plain = price_of({"selection.reference": "reference"})
    online = price_of({"loss": "drrho", "selection.reference": "reference"})
    cached = price_of({"loss": "drrho", "selection.reference": "cache"})
    per_example = loss_flops(batch_size=b, embedding_dim=E) / b
    compared = loss_flops(batch_size=b, embedding_dim=E, reference_dim=32) / b
    assert plain.cost.loss == pytest.approx(160 * per_example)
    assert online.cost.loss == cached.cost.loss == pytest.approx(160 * compared)
    assert cached.cost.reference_scoring == 0.0
    towers = TrainConfig.model_validate(guided().runs[0].config).model
    assert online.cost.reference_scoring == pytest.approx(160 * pricing.forward(towers).total)


def test_selection_of_a_part_of_the_steps_is_priced_by_its_share():
    whole, half = (price_of({"selection": JOINT | until}) for until in ({}, {"until": 0.5}))
    none = price_of({})
    for part in ("scoring", "selection", "reference_scoring"):
        assert getattr(half.cost, part) == pytest.approx(0.5 * getattr(whole.cost, part))
    assert half.cost.learner == pytest.approx(none.cost.learner)
    assert half.by_paper == pytest.approx(0.5 * (whole.by_paper + none.by_paper))
    assert price_of({"selection": BALANCED}).total == pytest.approx(none.total)  # which scores nothing
