"""Display names: `label` of a run and `labels` of an axis, which are not part of the identity."""

import pytest
import yaml

from jestlab.analysis.names import Names
from jestlab.platform.errors import SpecError
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import StudySpec, cases, grid, load
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.overrides import apply, parse

F = "selection.filtering_ratio"
RUNS = {"uniform": {}, "joint": {"selection.rule": "joint"}}
LABELLED = {"uniform": {"label": "IID"}, "joint": {"selection.rule": "joint", "label": "JEST"}}
AXIS = {"runs": ["joint"], "grid": {F: [0.5, 0.9]}}


def study(runs=None, labels=None, **parts):
    axis = AXIS | ({} if labels is None else {"labels": labels})
    written = {"name": "s", "base": {"selection.reference": "uniform"}, "runs": RUNS, "axes": [axis]}
    return StudySpec.parse(written | ({} if runs is None else {"runs": runs}) | parts)


def shown(spec):
    variants = [member.variant for member in expand(spec)]
    names = Names(spec.to_dict(), [(each.name, each.label, each.point) for each in variants])
    return [names.shown[each.label] for each in variants]


@pytest.mark.parametrize(
    ("label", "labels", "names"),
    [
        (None, None, ["joint filtering_ratio=0.5", "joint filtering_ratio=0.9"]),
        ("JEST (ours)", None, ["JEST (ours) filtering_ratio=0.5", "JEST (ours) filtering_ratio=0.9"]),
        (None, {F: {"name": "f", 0.5: "50%", 0.9: "90%"}}, ["joint f=50%", "joint f=90%"]),
        ("JEST", {F: {0.9: "most"}}, ["JEST filtering_ratio=0.5", "JEST filtering_ratio=most"]),
        ("JEST", {F: {"name": "", 0.5: "half"}}, ["JEST half", "JEST 0.9"]),
        ("", {F: {"name": "", 0.5: "half", 0.9: "most"}}, ["half", "most"]),
    ],
)
def test_display_names_combine_the_label_and_the_texts_of_values(label, labels, names):
    joint = {"selection.rule": "joint"} | ({} if label is None else {"label": label})
    runs = {"uniform": {}, "joint": joint}
    assert shown(study(runs, labels))[1:] == names


def test_labels_do_not_change_fingerprints():
    plain, renamed = (plan(each, placement="none") for each in (study(), study(LABELLED, {F: {"name": "f"}})))
    assert [run.fingerprint for run in plain.runs] == [run.fingerprint for run in renamed.runs]
    assert [run.label for run in plain.runs] == [run.label for run in renamed.runs]


def test_labels_in_yaml_and_python(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "runs:\n"
        "  uniform: {label: IID}\n"
        "  joint: {label: JEST, selection: {rule: joint, reference: uniform}}\n"
        f"axes: [{{runs: [joint], grid: {{{F}: [.5, 9e-1]}}, labels: {{{F}: {{name: f, .5: 5, .9: 90}}}}}}]\n"
        "reports: [table: {baseline: IID}]\n"
    )
    assert shown(load(path.as_posix())) == ["IID", "JEST f=5", "JEST f=90"]
    axis = grid({F: (0.5, 0.9)}, labels={F: {"name": "f", 0.5: "50%"}})
    assert shown(study(axes={"joint": axis}))[1:] == ["joint f=50%", "joint f=0.9"]
    axis = cases({F: 0.5}, {F: 0.9}, labels={F: {0.9: "most"}})
    assert shown(study(axes={"joint": axis}))[2] == "joint filtering_ratio=most"


LABEL_ERRORS = """
{selection.filtering: {}} => .selection.filtering: the axis has no key 'selection.filtering': did you mean
{selection.filtering_ratio: {0.8: x}} => .selection.filtering_ratio.0.8: the axis has no value 0.8 of
{selection.filtering_ratio: f} => .selection.filtering_ratio: must be a mapping of `name` and texts by value
{selection.filtering_ratio: {0.5: [half]}} => .selection.filtering_ratio.0.5: must be a text on one line
[selection.filtering_ratio] => : must be a mapping such as {selection.filtering_ratio: {name: f, 0.5: 50%}}
"""
NAME_ERRORS = r"""
{uniform: {label: A}, other: {label: A}, joint: {}}
=> other: 'other' is shown as 'A', which means 'uniform': give it another label
{uniform: {label: other}, other: {label: B}, joint: {}}
=> uniform: 'uniform' is shown as 'other', which means 'other'
{joint: {label: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}}
=> joint.label: is longer than 80
{uniform: {label: ''}, joint: {}} => uniform.label: is empty, and the run is on no axis
{uniform: {label: "a\nb"}, joint: {}} => uniform.label: must be a text on one line
"""


def test_rejects_invalid_and_ambiguous_labels(check_errors):
    check_errors(LABEL_ERRORS, lambda text: expand(study(labels=yaml.safe_load(text))), "axes.0.labels")
    with pytest.raises(SpecError, match=r"runs\.joint: .* is shown as 'joint filtering_ratio=x', which"):
        expand(study(labels={F: {0.5: "x", 0.9: "x"}}))
    check_errors(NAME_ERRORS, lambda text: expand(study(yaml.safe_load(text))), "runs.")


def test_reports_and_claims_take_both_names():
    claims = [{"statement": "more", "of": "JEST f=0.5", "above": "IID"}]
    reports = [{"table": {"baseline": "IID"}}, {"curves": {"runs": ["JEST", "uniform"]}}]
    assert expand(study(LABELLED, {F: {"name": "f"}}, claims=claims, reports=reports))
    with pytest.raises(SpecError, match="no run 'IDI': did you mean 'IID'"):
        expand(study(LABELLED, reports=[{"table": {"baseline": "IDI"}}]))


def test_overrides_change_labels_and_drop_those_of_removed_values():
    labelled = study(labels={F: {"name": "f", 0.5: "50%", 0.9: "90%"}})
    fewer = apply(labelled, [parse(f"axes.0.grid.{F}=[0.9, 0.8]")])
    assert shown(fewer)[1:] == ["joint f=90%", "joint f=0.8"]
    assert shown(apply(labelled, [parse("runs.uniform.label=IID")]))[0] == "IID"
    assert shown(apply(labelled, [parse(f"axes.0.labels={{{F}: {{name: g}}}}")]))[1] == "joint g=0.5"
