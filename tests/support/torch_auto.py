#!/usr/bin/env python3
"""An unmodified training script that says nothing of its order: a CPU model, ImageFolder, DataLoader(shuffle=True), maybe validation.

torch_auto.py TRAIN [--val DIR] [--seed S] [--epochs E] [--workers N] [--batch B] [--persistent] [--model] [--probe]
              [--world W --rank R] [--pause SECONDS]

--pause waits between epochs and after the first 256 samples of each, so that whoever watches the mount can keep up with a dataset that is
far too small for training. Prints one JSON line.
"""
import argparse, json, time

import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder

p = argparse.ArgumentParser()
p.add_argument("train")
p.add_argument("--val")
p.add_argument("--seed", type=int)
p.add_argument("--epochs", type=int, default=3)
p.add_argument("--workers", type=int, default=2)
p.add_argument("--batch", type=int, default=32)
p.add_argument("--persistent", action="store_true")
p.add_argument("--model", action="store_true")
p.add_argument("--probe", action="store_true")
p.add_argument("--world", type=int, default=1)
p.add_argument("--rank", type=int, default=0)
p.add_argument("--pause", type=float, default=0)
a = p.parse_args()


def load(path):
    with open(path, "rb") as f:
        return torch.tensor([len(f.read())])


if a.seed is not None:
    torch.manual_seed(a.seed)
if a.model:
    torch.nn.Sequential(torch.nn.Linear(192, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
train = ImageFolder(a.train, loader=load)
if a.probe:
    train[0]
sampler = DistributedSampler(train, a.world, a.rank, shuffle=True) if a.world > 1 else None
loader = DataLoader(train, batch_size=a.batch, shuffle=sampler is None, sampler=sampler, num_workers=a.workers,
                    persistent_workers=a.persistent and a.workers > 0)
val = DataLoader(ImageFolder(a.val, loader=load), batch_size=a.batch, num_workers=a.workers) if a.val else None

samples = 0
for epoch in range(a.epochs):
    if sampler is not None:
        sampler.set_epoch(epoch)
    paused = not a.pause
    for batch, (x, _) in enumerate(loader):
        samples += len(x)
        if not paused and (batch + 1) * a.batch >= 256:
            paused = True
            time.sleep(a.pause)
    time.sleep(a.pause)
    if val is not None:
        for x, _ in val:
            samples += len(x)
print(json.dumps({"samples": samples}))
