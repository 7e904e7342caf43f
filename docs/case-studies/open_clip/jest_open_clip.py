# jest_open_clip.py
import argparse
import functools

import open_clip
import torch
from open_clip_train import main, train

from jestlab.models.selection.batches import SubBatches  # installed alone: jestlab_select.batches

parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)  # other arguments are open_clip's
parser.add_argument("--jest-reference", required=True)  # a checkpoint, trained on curated data
parser.add_argument("--jest-reference-model")  # its architecture, if it isn't --model
parser.add_argument("--jest-ratio", type=float, default=0.8)
parser.add_argument("--jest-rule", default="joint")
jest, others = parser.parse_known_args()
original = main.train_one_epoch


@functools.cache
def reference(name, device):
    model = open_clip.create_model(name, load_weights=False, device=device, output_dict=True)
    open_clip.load_checkpoint(model, jest.jest_reference)
    return model


def embed(model, args, batch):
    is_training, model = model.training, train.unwrap_model(model).eval()
    with train.get_autocast(args.precision, device_type=torch.device(args.device).type)():
        found = model(*batch)
    model.train(is_training)
    return found["image_features"], found["text_features"], found["logit_scale"], found.get("logit_bias", 0.0)


def train_one_epoch(model, data, loss, epoch, optimizer, scaler, scheduler, dist_model, args, **options):
    loader = data["train"].dataloader
    models = (model, reference(jest.jest_reference_model or args.model, args.device))
    data["train"].dataloader = SubBatches(
        loader, *(functools.partial(embed, x, args) for x in models), device=args.device,
        generator=torch.Generator().manual_seed(args.seed + epoch), filtering_ratio=jest.jest_ratio,
        rule=jest.jest_rule, loss="sigmoid" if args.siglip else "softmax",
        group=torch.distributed.group.WORLD if args.distributed else None,
    )  # fmt: skip
    original(model, data, loss, epoch, optimizer, scaler, scheduler, dist_model, args, **options)
    data["train"].dataloader = loader


if __name__ == "__main__":
    main.train_one_epoch = train_one_epoch
    main.main(others)
