"""The signed-rank test: against SciPy for one look, and against all orders and signs for many looks."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.claims import signed_rank
from jestlab.analysis.claims.count_test import SPENDING
from jestlab.analysis.claims.signed_rank import SIGNED_RANK

distinct = st.lists(st.integers(1, 50), min_size=2, max_size=12, unique=True).flatmap(
    lambda sizes: st.tuples(*(st.sampled_from([float(size), -float(size)]) for size in sizes))
)


@given(distinct)
def test_one_look_equals_scipy_s_exact_test(values):
    from scipy.stats import wilcoxon

    expected = wilcoxon(values, alternative="greater", method="exact")
    found = SIGNED_RANK.p_values(np.array(values), 0.0, False, True)[-1]
    assert found == pytest.approx(expected.pvalue)
    ranks = len(values) * (len(values) + 1) // 2
    assert SIGNED_RANK.against(np.array(values))[-1] == ranks - expected.statistic


def test_looks_after_every_seed_cover_all_orders_and_signs(monkeypatch):
    """By brute force over all 720 orders and 64 signs of six seeds."""
    last = 6
    monkeypatch.setattr(signed_rank, "MOST_RANKED", last)
    table = signed_rank.all_looks.__wrapped__()
    orders = np.array([*itertools.permutations(range(1, last + 1))], float)
    signs = np.array([*itertools.product((-1.0, 1.0), repeat=last)])
    paths = (orders[:, None] * signs).reshape(-1, last)
    counts = SIGNED_RANK.against(paths)
    lowest = table[np.arange(1, last + 1), counts].min(axis=1)
    for n, most in ((4, 0), (5, 1), (6, 0), (6, 3)):
        evidence = n**SPENDING * signed_rank.one_look(n)[most]
        ever = np.zeros(len(paths), bool)
        for look in range(1, last + 1):
            single = look**SPENDING * signed_rank.one_look(look)[counts[:, look - 1]]
            ever |= (single <= evidence * (1 + 1e-9)) & (4 * counts[:, look - 1] < look * (look + 1))
        assert (
            table[n, most] == pytest.approx(ever.mean()) == pytest.approx((lowest <= table[n, most]).mean())
        )
