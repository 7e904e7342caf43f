"""PyTorch alone: several processes, data types, autocast, `torch.compile`, noise, and memory."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.support.structured import pairs

pytestmark = pytest.mark.oracle

ROOT = Path(__file__).parents[3]
B, WIDTH, SIZE = 120, 24, 30


def tensors(dtype=None, count=B):
    import torch

    both = pairs(count, WIDTH, seed=1), pairs(count, WIDTH, seed=2, temperature=30.0)
    return [tuple(torch.tensor(np.asarray(x), dtype=dtype) for x in z) for z in both]


def generator(seed=0):
    import torch

    return torch.Generator().manual_seed(seed)


PROCESSES = """
import sys, torch, torch.distributed as dist
sys.path.insert(0, {root!r})
from jestlab.models.selection.batches import SubBatches
from jestlab.models.selection.torch import exchange, select
from tests.models.selection.test_torch import B, SIZE, generator, tensors

rank, meeting, loss, result = int(sys.argv[1]), *sys.argv[2:]
dist.init_process_group("gloo", init_method=f"file://{{meeting}}", rank=rank, world_size=2)
world = dist.group.WORLD
mine = slice(rank * B // 2, (rank + 1) * B // 2)
learner, reference = ((image[mine], text[mine], t, b) for image, text, t, b in tensors())
noise = generator() if rank == 0 else generator(99)  # rank 0's noise counts
settings = {{"batch_size": SIZE, "chunks": 4, "gain": 1.0, "loss": loss, "group": world}}
found = select(noise, learner, reference, **settings)
rows = torch.arange(B)[mine]
share = exchange(torch.stack([rows, rows], dim=1), found.indices, world)
assert share.tolist() == [[i, i] for i in found.indices.tensor_split(2)[rank].tolist()]
uneven = exchange(rows, found.indices[:3], world)
assert uneven.tolist() == (found.indices[:2] if rank == 0 else found.indices[2:3]).tolist()
sub = SubBatches(
    [{{"row": rows}}], lambda _: learner, lambda _: reference, generator=generator(), filtering_ratio=0.75,
    group=world, chunks=4, gain=1.0, loss=loss,
)
[batch] = sub
assert batch["row"].tolist() == share[:, 0].tolist()
try:
    select(noise, *((x[0][rank:], x[1][rank:], *x[2:]) for x in (learner, reference)), **settings)
except ValueError as error:
    assert "equally many examples, not [60, 59]" in str(error)
else:
    raise AssertionError("unequal processes")
if rank == 0:
    torch.save(tuple(found), result)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("loss", ["sigmoid", pytest.param("softmax", marks=pytest.mark.full)])
def test_two_processes_select_what_one_selects(tmp_path, loss):
    import torch

    from jestlab.models.selection.torch import Selected, select

    script, result = tmp_path / "rank.py", tmp_path / "selected.pt"
    script.write_text(PROCESSES.format(root=str(ROOT)))
    command = [sys.executable, str(script)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meeting"), loss, str(result)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=300)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], errors
    found = Selected(*torch.load(result))
    alone = select(generator(), *tensors(), batch_size=SIZE, chunks=4, gain=1.0, loss=loss)
    assert found.indices.tolist() == alone.indices.tolist()
    torch.testing.assert_close(found.own, alone.own)
    torch.testing.assert_close(found.effective, alone.effective, rtol=1e-4, atol=0)


@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_scores_are_float32_within_autocast_and_for_half_precision(loss):
    import torch

    from jestlab.models.selection.torch import select

    settings = {"batch_size": SIZE, "chunks": 4, "loss": loss}
    alone = select(generator(), *tensors(), **settings)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = select(generator(), *tensors(), **settings)
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16  # it is still on
    assert within.own.equal(alone.own) and within.indices.equal(alone.indices)
    try:
        torch.set_float32_matmul_precision("medium")  # bfloat16 on processors that have it, TF32 on GPUs
        within = select(generator(), *tensors(), **settings)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert within.effective.equal(alone.effective)
    half = tensors(torch.bfloat16)
    rounded = [tuple(x.float() for x in z) for z in half]
    found, expected = (select(generator(), *z, **settings) for z in (half, rounded))
    assert found.own.dtype == torch.float32
    assert found.indices.equal(expected.indices)


def test_a_compiled_step_selects_the_same_and_its_embeddings_keep_their_gradients():
    import torch

    from jestlab.models.selection.torch import select

    learner, reference = tensors()
    layer = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    torch.nn.init.eye_(layer.weight)

    def step(image):
        mine = (torch.nn.functional.normalize(layer(image)), *learner[1:])
        chosen = select(generator(), mine, reference, batch_size=SIZE, chunks=4).indices
        return mine[0][chosen].sum(), chosen

    total, chosen = torch.compile(step, backend="aot_eager")(learner[0])
    _, expected = step(learner[0])
    assert chosen.equal(expected)
    total.backward()
    assert layer.weight.grad.abs().sum() > 0


def test_noise_is_gumbel_and_the_generator_alone_decides():
    import scipy.stats
    import torch

    from jestlab.models.selection.torch import _Rows, select

    noise = _Rows(torch.zeros(200_000), None).noise(generator(), 1)[0].numpy()
    assert scipy.stats.kstest(noise, "gumbel_r").pvalue > 0.001
    settings = {"batch_size": SIZE, "chunks": 4}
    one, same, other = (
        select(generator(seed), *tensors(), **settings).indices.tolist() for seed in (0, 0, 1)
    )
    assert one == same != other
    with pytest.raises(ValueError, match=r"noise must be \[4, 120\], not \[1, 120\]"):
        select(torch.zeros(1, B), *tensors(), **settings)
    with pytest.raises(ValueError, match="random is missing"):
        select(None, *tensors(), **settings)


@pytest.mark.parametrize("loss, rule", [("sigmoid", "joint"), ("softmax", "joint"), ("sigmoid", "greedy")])
def test_extreme_numbers_draw_no_example_twice(loss, rule):
    import torch

    from jestlab.models.selection.torch import select

    learner, reference = tensors()
    broken = learner[0].clone()
    broken[3] = torch.nan
    for mine in (*((*learner[:2], t, learner[3]) for t in (1e4, 1e10, 1e38)), (broken, *learner[1:])):
        for gain in (1e-30, 1e38):
            found = select(generator(), mine, reference, batch_size=100, rule=rule, loss=loss, gain=gain)
            assert len(set(found.indices.tolist())) == 100


def test_it_selects_block_by_block_with_a_criterion_of_ones_own(monkeypatch):
    import torch

    from jestlab.models.selection import numpy as in_numpy
    from jestlab.models.selection import torch as in_torch

    def clipped(learner, reference):
        difference = learner - reference
        return difference * (difference > 0)

    monkeypatch.setattr(in_torch, "BLOCK_LOGITS", 7 * 11)
    noise = np.random.default_rng(0).gumbel(size=(4, B))
    settings: dict[str, Any] = {"batch_size": SIZE, "chunks": 4, "gain": 1.0, "criterion": clipped}
    found = in_torch.select(torch.as_tensor(noise), *tensors(), **settings)
    expected = in_numpy.select(noise, *(tuple(x.numpy() for x in z) for z in tensors()), **settings)
    assert found.indices.tolist() == expected.indices.tolist()
