#!/usr/bin/env python3
"""An unmodified training loop over a mount, checking every byte: ImageFolder + DataLoader + a sampler.

torch_epochs.py MOUNT SOURCE [--sampler distributed|random|sequential] [--world W --rank R] [--seed S] [--epochs E]
                [--workers N] [--batch B] [--forget-set-epoch] [--skip-check]

MOUNT and SOURCE hold the same tree: each sample read through MOUNT is compared with the file in SOURCE. Prints one JSON line:
samples read, mismatches, seconds per epoch.
"""
import argparse, json, os, sys, time

import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder

p = argparse.ArgumentParser()
p.add_argument("mount")
p.add_argument("source")
p.add_argument("--sampler", default="distributed")
p.add_argument("--world", type=int, default=1)
p.add_argument("--rank", type=int, default=0)
p.add_argument("--seed", type=int, default=0)
p.add_argument("--epochs", type=int, default=3)
p.add_argument("--workers", type=int, default=2)
p.add_argument("--batch", type=int, default=32)
p.add_argument("--forget-set-epoch", action="store_true")
p.add_argument("--skip-check", action="store_true")
a = p.parse_args()


def load(path):
    with open(path, "rb") as f:
        data = f.read()
    if a.skip_check:
        return torch.tensor([len(data), 0])
    with open(os.path.join(a.source, os.path.relpath(path, a.mount)), "rb") as f:
        wrong = f.read() != data
    return torch.tensor([len(data), int(wrong)])


torch.manual_seed(a.seed)
dataset = ImageFolder(a.mount, loader=load)
if a.sampler == "distributed":
    sampler = DistributedSampler(dataset, num_replicas=a.world, rank=a.rank, shuffle=True, seed=a.seed)
    loader = DataLoader(dataset, batch_size=a.batch, num_workers=a.workers, sampler=sampler)
else:
    sampler = None
    loader = DataLoader(dataset, batch_size=a.batch, num_workers=a.workers, shuffle=a.sampler == "random")

samples = mismatches = size = 0
seconds = []
for epoch in range(a.epochs):
    if sampler is not None and not a.forget_set_epoch:
        sampler.set_epoch(epoch)
    began = time.time()
    for x, _ in loader:
        samples += len(x)
        size += int(x[:, 0].sum())
        mismatches += int(x[:, 1].sum())
    seconds.append(round(time.time() - began, 3))
print(json.dumps({"torch": torch.__version__, "dataset": len(dataset), "samples": samples, "bytes": size, "mismatches": mismatches, "seconds": seconds}))
sys.exit(1 if mismatches else 0)
