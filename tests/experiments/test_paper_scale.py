"""The specs at the paper's scale, against the paper's tables and appendix."""

import functools

import pytest

from jestlab.analysis import published
from jestlab.analysis.costs import Step
from jestlab.experiments import paper
from jestlab.platform.planning.cost import budgeted
from jestlab.platform.planning.plan import PlannedRun, plan
from jestlab.platform.spec import load

ROWS = {
    "comparison": {
        ("SigLIP", "B", "40B"): "SigLIP-B",
        ("JEST++", "B", "4B"): "JEST++B",
        ("Flexi-JEST++", "B", "4B"): "Flexi-JEST++B",
        ("SigLIP", "L", "40B"): "SigLIP-L",
        ("JEST++", "L", "4B"): "JEST++L",
    },
    "longer_training": {
        ("SigLIP", "B", "40B"): "SigLIP-B",
        ("JEST", "B", "5B"): "JEST-5B",
        ("Flexi-JEST", "B", "13B"): "Flexi-JEST-13B",
        ("JEST++", "B", "4B"): "JEST++4B",
        ("Flexi-JEST++", "B", "4B"): "Flexi-JEST++4B",
        ("JEST++", "B", "10B"): "JEST++10B",
        ("Flexi-JEST++", "B", "10B"): "Flexi-JEST++10B",
    },
}
"""Published table → method, variant and examples as printed → label of the run."""


@functools.cache
def runs_of(study: str) -> dict[str, PlannedRun]:
    planned = budgeted(plan(load(study, "paper"), note_absent=True), None, "kubernetes")
    return {run.label: run for run in planned.runs}


def examples_of(run: PlannedRun) -> int:
    assert run.price is not None
    return run.price.examples


def step_of(run: PlannedRun) -> Step:
    assert run.price is not None and run.price.step is not None
    return run.price.step


def printed() -> list[tuple[str, str, float, float, float]]:
    """Table, label, examples, FLOPs an iteration and in all, over the baseline's."""
    cells = {
        (cell.table, cell.method, cell.variant, cell.position, cell.quantity): cell
        for cell in published.paper()
    }
    found = []
    for (table, method, variant, position, quantity), cell in cells.items():
        label = ROWS.get(table, {}).get((method, variant, cell.printed))
        if quantity == "examples_seen" and label is not None:
            seen, each, total = (
                cells[table, method, variant, position, q].value
                for q in ("examples_seen", "flops_per_iteration", "flops_total")
            )
            found.append((table, label, seen, each, total))
    return found


def test_every_row_of_the_papers_tables_is_a_run():
    assert {(table, label) for table, label, *_ in printed()} == {
        (table, label) for table, rows in ROWS.items() for label in rows.values()
    }


def test_examples_and_flops_agree_with_the_printed_tables(subtests):
    for table, label, examples, per_iteration, total in printed():
        with subtests.test(f"{table} {label}"):
            runs = runs_of(table)
            run, baseline = runs[label], runs["SigLIP-L" if label.endswith("L") else "SigLIP-B"]
            assert examples_of(run) == pytest.approx(examples, rel=1e-4)
            step = step_of(run)
            if "Flexi" in label:
                # The paper takes A = .28 without the text tower; with it A is .39. Check the paper's formula.
                assert step.approximate_share == 0.5
                alpha = (3 * (0.5 + 0.5 * 0.28) + 0.28 * step.super_batch_size / step.batch_size) / 3
            else:
                alpha = step.relative("paper", "scoring")
            assert round(alpha, 2) == pytest.approx(per_iteration, abs=0.0101)  # it prints 110% for 1.107
            assert alpha * examples_of(run) / examples_of(baseline) == pytest.approx(total, abs=0.0051)


def test_the_budgets_of_the_sweep_agree_with_the_paper():
    examples = {label: examples_of(run) / 1e9 for label, run in runs_of("approximation").items()}
    for share, billions in {0.0: 3, 0.25: 3.69, 0.5: 4.8, 0.75: 6.86, 0.95: 10.43}.items():
        assert examples[f"flexi-jest-{share}"] == pytest.approx(billions, rel=1e-4)
        assert billions == pytest.approx(3 / (0.25 * share + 1 - share), abs=0.006)
        if share:
            assert examples[f"patch_drop-uniform-{share}"] == examples[f"flexi-jest-{share}"]


OPTIMIZER = {
    "learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "weight_decay": 1e-4,
    "decay_parameters": ".*/kernel$", "clip_norm": 1.0, "warmup_percent": 1.0, "decay": "cosine",
    "temperature_multiplier": 1.0,
}  # fmt: skip


def test_what_studies_do_not_vary_is_as_in_the_papers_appendix(subtests):
    trained = [
        (name, label, run)
        for name in paper.STUDIES
        for label, run in runs_of(name).items()
        if run.program == "train"
    ]
    for name, label, run in trained:
        with subtests.test(f"{name} {label}"):
            config = run.config
            assert run.budget is not None
            assert (run.budget.chip, run.budget.chips) == ("v5e", 256)
            other = {"beta2": 0.999} if "beta2=0.999" in label else {}
            assert config["optimizer"] == OPTIMIZER | other
            small = name == "batch_size" and run.name in ("IID", "JEST++")
            assert small or step_of(run).batch_size == 32_768
            assert config["selection"]["chunks"] == 16
            vision = config["model"]["vision"]
            sizes = (224, 32) if name == "laion_transfer" else (256, 16)
            assert (vision["image_size"], vision["patch_size"]) == sizes
            assert config["model"]["text"]["length"] == 64


def test_curated_references_learn_for_ten_epochs_and_laion_for_a_billion_and_a_third():
    billions = {label: examples_of(run) / 1e9 for label, run in runs_of("curation").items()}
    for label, count in {"weak": 10, "moderate_ita": 3, "moderate_tq": 3, "strong": 1, "uniform": 3}.items():
        assert billions[label] == pytest.approx(count, rel=1e-4)
    laion = runs_of("laion_transfer")
    assert {examples_of(laion[label]) // 10**8 for label in ("SigLIP", "JEST++")} == {13}
    assert {laion[label].config["data"]["filter"] for label in ("SigLIP", "JEST++")} == {"punsafe < 0.5"}


def test_learners_see_loosely_filtered_data_and_references_curated_ones():
    """Only Table 3 has raw data; the reference of LAION's learners learns from curated WebLI."""
    for name in paper.STUDIES:
        for label, run in runs_of(name).items():
            if run.program == "train":
                data = run.config["data"]
                raw = name == "raw_vs_filtered" and label.endswith("raw")
                of_laion = name == "laion_transfer" and label != "reference"
                place = "webli-raw" if raw else "laion2b" if of_laion else "webli"
                assert data["train"]["path"].rpartition("/")[2] == place
                curated = run.config["initialization"] == 1
                assert (data["filter"] is not None) == (curated or of_laion)
    laion = runs_of("laion_transfer")
    assert "punsafe" not in laion["reference"].config["data"]["filter"]
    assert laion["reference"].config["data"]["recaption"]


def test_the_super_batch_is_fixed_where_the_batch_shrinks():
    sizes = {
        (run.name, step_of(run).batch_size, step_of(run).super_batch_size)
        for run in runs_of("batch_size").values()
        if run.name in ("IID", "JEST++")
    }
    assert sizes == {
        *(("JEST++", b, 163_840) for b in (32_768, 16_384, 8_192)),
        *(("IID", b, b) for b in (32_768, 16_384, 8_192)),
    }
