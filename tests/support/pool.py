#!/usr/bin/env python3
"""Reads files in an order that Python shuffles with a seed, by a pool of threads: pool.py FOLDER --seed S --threads N --epochs E."""
import argparse, os, random
from concurrent.futures import ThreadPoolExecutor

p = argparse.ArgumentParser()
p.add_argument("folder")
p.add_argument("--seed", type=int, default=42)
p.add_argument("--threads", type=int, default=1)
p.add_argument("--epochs", type=int, default=2)
a = p.parse_args()


def read(path):
    with open(path, "rb") as f:
        return len(f.read())


files = sorted(os.path.join(d, f) for d, _, names in os.walk(a.folder) for f in names)
order = list(range(len(files)))
random.seed(a.seed)
with ThreadPoolExecutor(a.threads) as pool:
    for _ in range(a.epochs):
        random.shuffle(order)
        assert all(pool.map(read, (files[i] for i in order)))
