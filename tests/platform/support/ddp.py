"""Train a linear model with DistributedDataParallel; every process has a part of each batch of 8 examples."""

import os
import time

import torch
import torch.distributed as dist

from jestlab.platform import client

run = client.run()
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="env://")
rank, count = dist.get_rank(), dist.get_world_size()
steps, per_process = run.config["steps"], 8 // count
inputs = torch.randn(steps, 8, 4, generator=torch.Generator().manual_seed(0))
targets = inputs @ torch.tensor([1.0, -2.0, 3.0, 0.5])

torch.manual_seed(run.seed)
model = torch.nn.Linear(4, 1)
first, checkpoint = 0, run.directory / "checkpoint.pt"
if run.resume and checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    first = saved["step"]
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
(run.directory / f"rank-{rank}").write_text(str(os.getpid()))


def save(step: int) -> None:
    if rank == 0:
        with run.phase("checkpoint"):
            run.flush()
            torch.save({"model": model.state_dict(), "step": step}, run.directory / "new.pt")
            (run.directory / "new.pt").replace(checkpoint)
    dist.barrier()


run.progress(first, steps)
for step in range(first, steps):
    part = slice(rank * per_process, (rank + 1) * per_process)
    loss = torch.nn.functional.mse_loss(parallel(inputs[step, part]).squeeze(1), targets[step, part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.progress(step + 1, steps)
    go_on = (run.directory.parents[2] / "hurry").exists()
    if not go_on:  # until the test lets it continue
        time.sleep(0.1)
    if run.config.get("fails") == rank and step == 5:
        raise SystemExit("no more data")
    stop = torch.tensor(float(run.stop_requested()))
    dist.all_reduce(stop, dist.ReduceOp.MAX)
    if stop or step % 10 == 9:
        save(step + 1)
    if stop:
        break
else:
    weights = model.weight.detach().flatten().tolist()
    run.evaluation(steps, scores={f"weight/{i}": value for i, value in enumerate(weights)})
dist.barrier()
dist.destroy_process_group()
