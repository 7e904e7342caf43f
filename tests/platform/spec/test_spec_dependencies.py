import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import SpecError
from jestlab.platform.spec import StudySpec, grid
from jestlab.platform.spec.expand import expand, order
from jestlab.platform.spec.variants import RunReference


def node(name, needs=(), point=None):
    label = name + "".join(f" {k}={v}" for k, v in (point or {}).items())
    return name, label, point or {}, [RunReference(need, need, ("runs", name, "needs")) for need in needs]


@st.composite
def acyclic(draw):
    """Names with needs among the names before them in a hidden order, shown in another order."""
    names = [f"r{i}" for i in range(draw(st.integers(1, 12)))]
    needs = {
        name: draw(st.sets(st.sampled_from(names[:i]), max_size=3)) if i else set()
        for i, name in enumerate(names)
    }
    return [node(name, sorted(needs[name])) for name in draw(st.permutations(names))]


@given(acyclic())
def test_each_run_is_the_first_given_one_whose_dependencies_come_before(nodes):
    ordered = order(nodes)
    names = {node[0]: index for index, node in enumerate(nodes)}
    done = set()
    for index, needs in ordered:
        assert needs == {reference.role: names[reference.name] for reference in nodes[index][3]}
        ready = [i for i, n in enumerate(nodes) if i not in done and all(names[r.name] in done for r in n[3])]
        assert index == min(ready)
        done.add(index)
    assert len(ordered) == len(nodes)


@given(acyclic(), st.randoms(use_true_random=False))
def test_any_back_edge_is_reported_as_an_actual_cycle(nodes, random):
    index = random.randrange(len(nodes))
    name, label, point, references = nodes[index]
    dependents = {name}
    while more := {n[0] for n in nodes if dependents & {r.name for r in n[3]}} - dependents:
        dependents |= more
    back = random.choice(sorted(dependents))
    nodes[index] = (name, label, point, [*references, RunReference("back", back, ("runs", name, "needs"))])
    with pytest.raises(SpecError) as caught:
        order(nodes)
    cycle = str(caught.value).split("cycle: ")[1].split(" → ")
    assert cycle[0] == cycle[-1]
    needs = {node[0]: {reference.name for reference in node[3]} for node in nodes}
    assert all(b in needs[a] for a, b in itertools.pairwise(cycle))


def test_orders_a_chain_longer_than_the_recursion_limit():
    chain = [node(f"r{i}", [f"r{i - 1}"] if i else []) for i in reversed(range(5_000))]
    assert [chain[index][0] for index, _ in order(chain)[:3]] == ["r0", "r1", "r2"]
    chain[-1] = node("r0", ["r4999"])
    with pytest.raises(SpecError, match="form a cycle"):
        order(chain)


JOINT = {"selection": {"rule": "joint", "reference": "reference"}}


def expanded(runs, **written):
    return expand(StudySpec.parse({"name": "s", "runs": runs, **written}))


def test_a_dependency_is_the_run_with_the_same_seed_and_equal_values_on_shared_keys():
    axes = [
        {"runs": ["joint", "reference"], **grid({"optimizer.beta2": [0.9, 0.95]})},
        {"runs": ["joint"], **grid({"selection.filtering_ratio": [0.5, 0.8]})},
    ]
    members = expanded({"joint": JOINT, "reference": {}}, axes=axes, seeds=[5, 7])
    joint = [member for member in members if member.variant.name == "joint"]
    assert len(joint) == 8
    for member in joint:
        assert [*member.needs] == ["selection.reference"]
        reference = members[member.needs["selection.reference"]]
        assert (reference.variant.name, reference.seed) == ("reference", member.seed)
        assert reference.variant.point.items() <= member.variant.point.items()


def test_a_reference_without_effect_is_not_a_dependency():
    """The base may name a reference for all: the reference itself and the uniform baseline do not read it."""
    runs = {"reference": {}, "uniform": {"optimizer.beta2": 0.9}, "joint": {"selection.rule": "joint"}}
    members = expanded(runs, base={"selection.reference": "reference"})
    needs = [(member.variant.name, dict(member.needs)) for member in members]
    assert needs == [("reference", {}), ("uniform", {}), ("joint", {"selection.reference": 0})]


def test_a_run_that_fixes_its_seed_cannot_need_one_that_does_not():
    runs = {"reference": {}, "joint": {"seed": 0, **JOINT}}
    with pytest.raises(SpecError, match="needs 'reference', which has 3 replicates"):
        expanded(runs, seeds=3)
    assert expanded(runs, seeds=1)
    fixed = expanded(runs | {"reference": {"seed": 0}}, seeds=3)
    assert [member.seed for member in fixed] == [0] * 6
