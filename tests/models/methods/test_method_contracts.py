"""Every method satisfies the contract of rules or losses."""

import pytest

from jestlab.models.methods.concepts import concept_diversity, concept_frequency
from jestlab.models.methods.distillation import distilled
from jestlab.models.methods.drrho import drrho
from jestlab.models.methods.highest import highest
from jestlab.platform.contracts.training import check_loss, check_rule


@pytest.mark.parametrize(
    "rule, options",
    [
        (highest, {}),
        (concept_frequency, {}),
        pytest.param(concept_diversity, {"target": 2}, marks=pytest.mark.full),
    ],
)
def test_rules(rule, options):
    check_rule(rule, **options)


@pytest.mark.parametrize("loss, options", [(drrho, {}), (distilled, {"loss": "softmax", "weight": 0.5})])
def test_losses(loss, options):
    check_loss(loss, **options)
