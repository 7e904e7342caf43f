"""One run of the study: open_clip's own training and evaluation, reported to jestlab."""

import os
import sys
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from jestlab.platform import client

run = client.run()
config = run.config
selects = config["rule"] != "none"
batch, ratio, points = config["batch_size"], config["filtering_ratio"], config["evaluations"]
super_batch = round(batch / (1 - ratio)) if selects else batch
steps = config["examples_seen"] // batch // points  # for each epoch of open_clip
icons = Path(config["icons"])
torch.set_num_threads(1)

flags = [
    f"--model=local-dir:models/{config['model']}", "--siglip", "--precision=fp32", "--device=cpu",
    f"--seed={run.seed}", f"--lr={config['learning_rate']}", f"--wd={config['weight_decay']}", "--workers=1",
    f"--warmup={steps * points // 20}", f"--logs={run.directory}", "--name=open_clip", "--resume=latest",
    "--save-most-recent", "--dataset-type=webdataset", "--dataset-resampled", f"--batch-size={super_batch}",
    f"--train-data={icons / config['data']}", f"--train-num-samples={steps * super_batch}",
    f"--epochs={points}", f"--val-data={icons / config['benchmark']}", "--val-num-samples=500",
]  # fmt: skip
if selects:
    checkpoint = run.needs["reference"] / "open_clip" / "checkpoints" / "epoch_latest.pt"
    flags += [f"--jest-ratio={ratio}", f"--jest-rule={config['rule']}", f"--jest-reference={checkpoint}"]
    flags += [f"--jest-reference-model=local-dir:models/{config['reference_model']}"]
    sys.argv[1:] = flags
    import jest_open_clip

    trainer, others = jest_open_clip.main, jest_open_clip.others
    trainer.train_one_epoch = jest_open_clip.train_one_epoch
else:
    from open_clip_train import main as trainer

    others = flags
train_one_epoch, evaluate = trainer.train_one_epoch, trainer.evaluate


def forward_flops(name):
    """Count the FLOPs of one example's forward pass."""
    import open_clip

    model = open_clip.create_model(f"local-dir:models/{name}", load_weights=False).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, 32, 32), torch.zeros(1, 16, dtype=torch.long))
    return counter.get_total_flops()


# 3 F for each example that is trained on; F and the reference's F for each candidate that is scored.
flops = 3 * batch * forward_flops(config["model"])
if selects:
    flops += super_batch * (forward_flops(config["model"]) + forward_flops(config["reference_model"]))


def reported_epoch(model, data, loss, epoch, *rest, **options):
    run.progress(epoch * steps, points * steps)
    train_one_epoch(model, data, loss, epoch, *rest, **options)
    run.progress((epoch + 1) * steps, points * steps)


def reported_evaluation(model, data, epoch, *rest, **options):
    with run.phase("evaluation"):
        found = evaluate(model, data, epoch, *rest, **options)
    done = epoch * steps
    scores = {f"emoji/{short}_r5": found[f"{long}_R@5"] for short, long in DIRECTIONS.items()}
    run.evaluation(done, examples_seen=done * batch, flops_total=done * flops, scores=scores)


DIRECTIONS = {"i2t": "image_to_text", "t2i": "text_to_image"}
trainer.train_one_epoch, trainer.evaluate = reported_epoch, reported_evaluation
os.environ["TOKENIZERS_PARALLELISM"] = "false"
trainer.main(others)
