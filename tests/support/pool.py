#!/usr/bin/env python3
"""Reads files in an order that Python shuffles with a seed, by a pool of threads: pool.py FOLDER --seed S --threads N --epochs E.

It pauses after the first 300 files of each epoch: whoever looks for the order meanwhile must be able to end before so few files are read.
"""
import argparse, os, random, time
from concurrent.futures import ThreadPoolExecutor

p = argparse.ArgumentParser()
p.add_argument("folder")
p.add_argument("--seed", type=int, default=42)
p.add_argument("--threads", type=int, default=1)
p.add_argument("--epochs", type=int, default=2)
p.add_argument("--pause", type=float, default=1)
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
        for part in (order[:300], order[300:]):
            assert all(pool.map(read, [files[i] for i in part]))
            time.sleep(a.pause)
