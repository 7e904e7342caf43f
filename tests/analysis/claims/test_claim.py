"""The keys of a spec that make claims: their forms, and invalid values."""

import pytest
from pydantic import ValidationError

from jestlab.analysis.claims import Claim, Family, Side, Until

CLAIM = {"statement": "s", "of": "a", "above": "b"}
LADDER = {"statement": "s", "of": "a", "exponent_above": 0.3, "over": "size"}
TUNED = {"best": "a", "by": "dev/loss"}


def test_parses_what_a_spec_writes_and_writes_it_back():
    near = {"statement": "s", "of": ["a", "b"], "near": {"of": "c", "minus": ["a", "b"]}, "within": 0.1}
    for cls, *cases in (
        (Family, {}, {"error": 0.1}, {"error": 0.01, "adjust": "none"}),
        (Until, {"until": "decided"}, {"until": "decided", "at_least": 5, "at_most": 40},
         {"until": "decided", "at_least": 1, "at_most": 100, "budget": {"hours": 1.5}}),
        (Claim, CLAIM, near, CLAIM | {"of": {"of": "a", "measure": "loss"}, "unless": "u", "measure": "m"},
         CLAIM | {"of": TUNED, "above": {"best": ["b", "c"], "by": "dev/loss", "measure": "m"}}),
    ):  # fmt: skip
        for written in cases:
            parsed = cls.model_validate(written)
            assert parsed.model_dump(mode="json", exclude_defaults=True) == written
            assert cls.model_validate(parsed) == parsed


def test_short_forms():
    assert Family.model_validate(None) == Family.model_validate({"error": None}) == Family()
    assert Family.model_validate("none") == Family(adjust="none")
    assert Side.model_validate("a") == Side.model_validate({"of": ["a"], "minus": None}) == Side(of=("a",))


def test_the_best_run_is_written_with_the_metric_that_chooses_it():
    claim = Claim.model_validate(CLAIM | {"of": TUNED | {"minus": "c"}, "measure": "test/loss"})
    assert claim.text({"a": "A"}) == "(best A by dev/loss) − (c) above b, by test/loss"
    assert [*claim.of.named()] == [(("best",), "a"), (("minus",), "c")]


@pytest.mark.parametrize(
    ("cls", "written", "place", "message"),
    [
        (Family, 0.05, "", "mapping|dict|Family"),
        (Family, "holm", "", "mapping|dict|Family"),
        *((Family, {"error": error}, "error", "Input should be") for error in (0, 0.5, float("nan"), "half")),
        (Family, {"adjust": "holm"}, "adjust", "bonferroni"),
        (Family, {"rate": 0.5}, "rate", "less than 0.5"),
        (Family, {"rate": 0.05, "error": 0.05}, "", "a rate and an error: keep"),
        (Family, {"rate": 0.05, "adjust": "none"}, "", "a rate and an error: keep"),
        (Family, {"test": "t"}, "test", "'sign' or 'signed_rank'"),
        (Family, {"erorr": 0.05}, "erorr", "xtra"),
        (Until, {}, "until", "required"),
        (Until, {"until": "bored"}, "until", "decided"),
        (Until, {"until": "decided", "at_least": 0}, "at_least", "1"),
        (Until, {"until": "decided", "at_most": 101}, "at_most", "100"),
        (Until, {"until": "decided", "at_least": 30}, "", "at_least 30 is above at_most 24"),
        (Until, {"until": "decided", "budget": 1}, "budget", "Budget"),
        (Until, {"until": "decided", "budget": {"hours": 0}}, "budget.hours", "greater than 0"),
        (Claim, CLAIM | {"below": "b"}, "", "exactly one of .* not above and below"),
        (Claim, {"statement": "s", "of": "a"}, "", "exactly one of .* not none"),
        (Claim, CLAIM | {"above": "a"}, "", "above equals `of`"),
        (Claim, {"statement": "s", "of": "a", "near": "b"}, "", "within is missing"),
        (Claim, CLAIM | {"within": 0}, "within", "greater than 0"),
        (Claim, LADDER | {"over": ""}, "", "exponent_above and over belong together"),
        (Claim, CLAIM | {"over": "size"}, "", "exponent_above and over belong together"),
        (Claim, LADDER | {"within": 0.1}, "", "without best, minus, or within"),
        (Claim, LADDER | {"exponent_above": 0}, "exponent_above", "greater than 0"),
        (Claim, LADDER | {"above": "b"}, "", "exactly one of .* not above and exponent_above"),
        (Claim, CLAIM | {"statement": " "}, "statement", "pattern"),
        (Claim, CLAIM | {"of": []}, "of.of", "1 item"),
        (Claim, CLAIM | {"above": ["b", "c", "b"]}, "above.of", "duplicate run 'b'"),
        (Claim, CLAIM | {"of": {"minus": "a"}}, "of", "exactly one of `of` and `best`"),
        (Claim, CLAIM | {"of": TUNED | {"of": "b"}}, "of", "exactly one of `of` and `best`"),
        (Claim, CLAIM | {"of": {"best": "a"}}, "of", "{best: RUN, by: METRIC}"),
        (Claim, CLAIM | {"of": {"of": "a", "by": "m"}}, "of", "{best: RUN, by: METRIC}"),
        (Claim, CLAIM | {"of": TUNED | {"by": "score_after_0.5"}}, "of", "a metric that is not a score"),
        (Claim, CLAIM | {"of": TUNED, "measure": "dev/loss"}, "", "of: dev/loss chooses .* by chance"),
        (Claim, CLAIM | {"above": TUNED | {"measure": "dev/loss"}}, "", "above: dev/loss chooses"),
    ],
)  # fmt: skip
def test_rejects_invalid_values_and_names_the_place(cls, written, place, message):
    with pytest.raises(ValidationError, match=f"(?s){message}") as raised:
        cls.model_validate(written)
    assert {".".join(map(str, each["loc"])) for each in raised.value.errors()} == {place}
