#!/usr/bin/env python3
"""Unmodified loaders whose order is kept or named: torch_named.py MOUNT (csv | salted) [--epochs E] [--pause SECONDS]

csv: a Dataset that reads MOUNT/train.csv (rows not sorted) and is shuffled after torch.manual_seed(42).
salted: a sampler that sorts by a hash of path and epoch: the same in every run, and no generator's.
Prints one JSON line.
"""
import argparse, csv, hashlib, json, os, time

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

p = argparse.ArgumentParser()
p.add_argument("mount")
p.add_argument("how", choices=["csv", "salted"])
p.add_argument("--epochs", type=int, default=2)
p.add_argument("--pause", type=float, default=0)
a = p.parse_args()


class Files(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb") as f:
            return torch.tensor([len(f.read())])


class Salted(Sampler):
    def __init__(self, paths):
        self.paths, self.epoch = paths, 0

    def __len__(self):
        return len(self.paths)

    def __iter__(self):
        self.epoch += 1
        key = lambda i: hashlib.sha1(f"{self.epoch} {os.path.basename(self.paths[i])}".encode()).digest()
        return iter(sorted(range(len(self.paths)), key=key))


torch.manual_seed(42)
if a.how == "csv":
    with open(os.path.join(a.mount, "train.csv")) as f:
        paths = [os.path.join(a.mount, row["file"]) for row in csv.DictReader(f)]
else:
    paths = sorted(os.path.join(d, name) for d, _, names in os.walk(os.path.join(a.mount, "train")) for name in names)
data = Files(paths)
sampler = Salted(paths) if a.how == "salted" else None
loader = DataLoader(data, batch_size=32, shuffle=sampler is None, sampler=sampler, num_workers=2)
samples = 0
for epoch in range(a.epochs):
    paused = not a.pause
    for batch, x in enumerate(loader):
        samples += len(x)
        if not paused and (batch + 1) * 32 >= 256:
            paused = True
            time.sleep(a.pause)
    time.sleep(a.pause)
print(json.dumps({"samples": samples}))
