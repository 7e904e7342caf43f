"""Number of runs after which a reference has paid for itself, calculated by hand."""

import math

from jestlab.analysis import tables
from jestlab.analysis.tables.explain import explain


def break_even(results, baseline=None):
    rows = tables.speedup_table(tables.finals(results, baseline)).frame
    return dict(rows.set_index("label")["break_even"].dropna()) if "break_even" in rows else {}


NEEDS = {"reference_training_share": 8e9}  # a third of what making the reference took


def test_break_even(new_store, stored_run):
    """Uniform spends 12 GFLOP; joint matches it with 4.5 and 6, and its reference took 24."""
    store = new_store().add(
        stored_run("reference", [0.5, 0.7], needed=1),
        stored_run("uniform", [0.1, 0.2, 0.3, 0.4]),
        stored_run("uniform", [0.1, 0.2, 0.3, 0.5], seed=1),
        stored_run("joint", [0.3, 0.5, 0.6, 0.6], **NEEDS),
        stored_run("joint", [0.3, 0.5, 0.6, 0.7], seed=1, **NEEDS),
        stored_run("lone", [0.3, 0.5, 0.6, 0.6]),
        stored_run("lost", [0.1, 0.1, 0.1, 0.1], **NEEDS),
        stored_run("unpriced", [0.3, 0.5, 0.6, 0.6], flops_per_step=None, **NEEDS),
        stored_run("scored", [0.3, 0.5, 0.6, 0.6], flops_per_step=(3e9, 0.0, 1e9), **NEEDS),
    )
    results = store.read()
    # 24 / 7.5 < 4; of 24 / 6 four are as much. The reference's scoring counts: scored spends 6.
    assert break_even(results) == {"joint": 5, "lost": math.inf, "scored": 5}
    assert break_even(results, "lone") == dict.fromkeys(("joint", "lost", "scored"), math.inf)

    table = tables.speedup_table(tables.finals(results))
    column = table.column_named("break-even")
    shown = {row: table.cell(row, column).text for row in table.frame["row"]}
    assert shown == {
        "uniform": "—",
        "joint": "5",
        "lone": "—",
        "lost": "∞",
        "unpriced": "—",
        "scored": "5",
    }
    assert table.cell("lost", column).mark == "†"
    told = explain(store.url, table, "joint", "break-even")
    assert [run["value"] for run in told.runs] == [4, 5]
    assert [run["inputs"] for run in told.runs] == [
        {"making_flops": 24e9, "scored_flops": 4.5e9},
        {"making_flops": 24e9, "scored_flops": 6e9},
    ]
    assert [run["against"]["scored_flops"] for run in told.runs] == [12e9, 12e9]

    # Both get there between an evaluation of unknown FLOPs and the next.
    unknown = "UPDATE v_evaluations SET flops_total = NULL WHERE step = 1 AND label {}"
    store.execute(unknown.format("IN ('joint', 'scored')"))
    assert break_even(store.read()) == {"lost": math.inf}
    store.execute("DELETE FROM v_runs WHERE label = 'lost'")
    assert "break-even" not in tables.speedup_table(tables.finals(store.read())).markdown()
