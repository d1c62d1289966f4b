#!/usr/bin/env python3
"""Epoch orders of the libraries that are installed here (torch, numpy, Python), each with the specification a user would write for it.

Prints one JSON object a line: {"spec": ..., "n": samples of the dataset, "epochs": [[sample, ...], ...]}.
"""
import json, random, sys

import numpy as np
import torch
from torch.utils.data import (BatchSampler, DataLoader, Dataset, DistributedSampler, RandomSampler, Subset, SubsetRandomSampler,
                              random_split)


class Numbers(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


def say(spec, n, epochs):
    print(json.dumps({"spec": spec, "n": n, "epochs": [[int(i) for i in epoch] for epoch in epochs]}))


def read(loader):
    return [int(i) for batch in loader for i in batch]


def epochs(loader, count=3, between=lambda: None):
    out = []
    for _ in range(count):
        out.append(read(loader))
        between()
    return out


def given(seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator


N, B = 230, 7
data = Numbers(N)
for seed in [0, 42, 2**32 + 5]:
    # RandomSampler: num_samples, replacement, with each source of randomness
    for k in [100, N, 500]:
        torch.manual_seed(seed)
        say(f"torch-random:seed={seed}:num_samples={k}", N, epochs(DataLoader(data, B, sampler=RandomSampler(data, num_samples=k))))
        sampler = RandomSampler(data, num_samples=k, generator=given(seed))
        say(f"torch-random:seed={seed}:num_samples={k}:generator=sampler", N, epochs(DataLoader(data, B, sampler=sampler)))
        sampler = RandomSampler(data, replacement=True, num_samples=k, generator=given(seed))
        say(f"torch-random:seed={seed}:num_samples={k}:replacement=true:generator=sampler", N, epochs(DataLoader(data, B, sampler=sampler)))
        torch.manual_seed(seed)
        sampler = RandomSampler(data, replacement=True, num_samples=k)
        say(f"torch-random:seed={seed}:num_samples={k}:replacement=true", N, epochs(DataLoader(data, B, sampler=sampler)))
        generator = given(seed)
        loader = DataLoader(data, B, sampler=RandomSampler(data, num_samples=k, generator=generator), generator=generator)
        say(f"torch-random:seed={seed}:num_samples={k}:generator=loader", N, epochs(loader))

    # what else draws from the default generator
    torch.manual_seed(seed)
    torch.empty(64, 10).uniform_()
    say(f"torch-random:seed={seed}:offset=643", N, epochs(DataLoader(data, B, shuffle=True)))
    torch.manual_seed(seed)
    val = DataLoader(Numbers(20), B)
    sampler = SubsetRandomSampler(range(5, 200, 3))
    say(f"torch-subset:seed={seed}:indices=5-199/3:between=4", N, epochs(DataLoader(data, B, sampler=sampler), 3, lambda: read(val)))
    torch.manual_seed(seed)
    torch.empty(100).uniform_()
    sampler = SubsetRandomSampler(range(N))
    say(f"torch-subset:seed={seed}:offset=102:workers=2", N, epochs(DataLoader(data, B, sampler=sampler, num_workers=2)))
    torch.manual_seed(seed)
    order = [torch.randperm(N).tolist() for _ in range(3)]  # RandomSampler of torch <= 1.8, nothing else drawing
    say(f"torch-random:seed={seed}:generator=stream:offset=0:between=0", N, order)

    # random_split, its parts shuffled in every way
    for part in range(3):
        torch.manual_seed(seed)
        subset = random_split(data, [0.7, 0.2, 0.1])[part]
        say(f"torch-random:seed={seed}:split=0.7+0.2+0.1:part={part}", N, epochs(DataLoader(subset, B, shuffle=True)))
        subset = random_split(data, [150, 50, 30], generator=given(42))[part]
        torch.manual_seed(seed)
        say(f"torch-random:seed={seed}:split=150+50+30:part={part}:split_seed=42", N, epochs(DataLoader(subset, B, shuffle=True)))
        for rank in range(2):
            sampler = DistributedSampler(subset, 2, rank, seed=seed)
            order = []
            for epoch in range(3):
                sampler.set_epoch(epoch)
                order.append(read(DataLoader(subset, B, sampler=sampler, drop_last=True)))
            ranks = f"world=2:rank={rank}:split=150+50+30:part={part}:split_seed=42:batch={B}:drop_last_batch=true"
            say(f"torch-distributed:seed={seed}:{ranks}", N, order)
    torch.manual_seed(seed)
    train, _ = random_split(data, [180, 50])
    sampler = SubsetRandomSampler(range(180))
    say(f"torch-subset:seed={seed}:split=180+50:part=0", N, epochs(DataLoader(train, B, sampler=sampler)))
    sampler = DistributedSampler(data, 3, 1, shuffle=False)
    say("sequential:world=3:rank=1", N, [list(sampler)] * 2)

    # the indices shuffled by numpy or Python, a loader over a slice
    if seed < 2**32:
        indices = list(range(N))
        np.random.seed(seed)
        np.random.shuffle(indices)
        split = int(np.floor(0.2 * N))
        torch.manual_seed(seed)
        subset = Subset(data, indices[split:])
        say(f"torch-random:seed={seed}:split=0.2+0.8:part=1:split_by=numpy-legacy:split_seed={seed}", N,
            epochs(DataLoader(subset, B, shuffle=True)))
        np.random.seed(seed)
        say(f"numpy-legacy:seed={seed}", N, [np.random.permutation(N) for _ in range(4)])
        np.random.seed(seed)
        order = np.arange(N)
        say(f"numpy-legacy:seed={seed}:again=in-place", N, [np.random.shuffle(order) or order.copy() for _ in range(4)])
        say(f"numpy-legacy:seed={seed}:again=reseeded", N, [np.random.RandomState(seed + e).permutation(N) for e in range(4)])
        order = np.random.RandomState(seed).permutation(N)
        say(f"numpy-legacy:seed={seed}:again=never:world=4:rank=3", N, [order[3::4]] * 2)
    rng = np.random.default_rng(seed)
    order = list(range(N))
    say(f"numpy-generator:seed={seed}:again=in-place", N, [rng.shuffle(order) or list(order) for _ in range(4)])
    say(f"numpy-generator:seed={seed}:again=reseeded", N, [np.random.default_rng(seed + e).permutation(N) for e in range(4)])
    rng = random.Random(seed)
    order = list(range(N))
    rng.shuffle(order)
    say(f"torch-distributed:split=200+30:part=0:split_by=python:split_seed={seed}:epoch=0", N,
        [[order[i] for i in torch.randperm(200, generator=given(0))]])
    rng = random.Random(seed)
    say(f"python-sample:seed={seed}:k=40", N, [rng.sample(range(N), 40) for _ in range(4)])
    rng = random.Random(seed)
    say(f"python-sample:seed={seed}:k=5", 5000, [rng.sample(range(5000), 5) for _ in range(4)])
    rng = random.Random(seed)

    def fresh():
        order = list(range(N))
        rng.shuffle(order)
        return order

    say(f"python-shuffle:seed={seed}", N, [fresh() for _ in range(4)])
