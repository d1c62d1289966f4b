#!/usr/bin/env python3
"""Golden vectors that need older libraries: make_more.py accelerate|wids OUT

accelerate: with accelerate 0.34.2 (accelerate_shard_034) or 1.7.0 (accelerate_shard_17), torch 1.13.
wids: with webdataset 0.2.100 (wids), CPython 3.11.
"""
import json, sys

import torch
from torch.utils.data import DataLoader, Dataset

from record import record


class Numbers(Dataset):
    def __init__(self, n, lengths=None):
        self.n, self.lengths = n, lengths

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


def accelerate():
    import accelerate
    from accelerate.data_loader import prepare_data_loader

    cases = []
    for n, world, batch in [(1000, 4, 7), (1000, 3, 8), (100, 4, 25), (10, 4, 8), (37, 2, 5)]:
        for split in [False, True]:
            for drop in [False, True]:
                for rank in sorted({0, world - 1}):
                    for config, even in [("seedable", True), ("default", True), ("seedable", False)]:
                        if (drop and not even) or (split and batch % world):
                            continue
                        torch.manual_seed(42)
                        loader = prepare_data_loader(
                            DataLoader(Numbers(n), batch_size=batch, shuffle=True, drop_last=drop), num_processes=world,
                            process_index=rank, split_batches=split, even_batches=even, put_on_device=False,
                            use_seedable_sampler=config == "seedable", rng_types=["generator"] if config == "default" else None)
                        epochs = []
                        for epoch in range(3):
                            if config == "seedable":
                                loader.set_epoch(epoch)
                            epochs.append(record(i for b in loader.batch_sampler for i in b))
                        cases.append(dict(cfg=config, n=n, world=world, rank=rank, B=batch, split=split, drop_last=drop, even=even,
                                          seed=42, epochs=epochs))
    return {"accelerate": accelerate.__version__, "torch": torch.__version__}, cases


def wids():
    import torch.distributed as dist
    from wids import wids

    def three(sampler):
        out = []
        for epoch in range(3):
            sampler.epoch = epoch
            out.append(record(sampler))
        return out

    cases = []
    for seed in [0, 42, 2**32 + 5]:
        for n, chunk in [(10, 1), (1000, 64), (5000, 2000)]:
            for first in [False, True]:
                sampler = wids.ChunkedSampler(Numbers(n), chunksize=chunk, seed=seed, shuffle=True, shufflefirst=first)
                cases.append(dict(sampler="chunked", seed=seed, n=n, chunk=chunk, first=first, epochs=three(sampler)))
        sampler = wids.ShardListSampler(Numbers(1200, [100] * 12), seed=seed)
        cases.append(dict(sampler="shardlist", seed=seed, n=1200, chunk=100, first=False, epochs=three(sampler)))
    # The sampler asks torch.distributed who it is; nothing else of it is used.
    dist.is_initialized, dist.get_world_size = lambda: True, lambda group=None: 3
    for seed in [0, 7]:
        for rank in [1, 2, 0]:
            dist.get_rank = lambda group=None: rank
            for n, chunk in [(1000, 1000000), (1000, 50)]:
                sampler = wids.DistributedChunkedSampler(Numbers(n), num_replicas=3, rank=rank, seed=seed, chunksize=chunk, shuffle=True)
                cases.append(dict(sampler="distributed", seed=seed, n=n, chunk=chunk, first=False, world=3, rank=rank,
                                  epochs=three(sampler)))
    return {"webdataset": "0.2.100"}, cases


library, made = {"accelerate": accelerate, "wids": wids}[sys.argv[1]]()
library["python"] = sys.version.split()[0]
json.dump({"lib": library, "note": "make_more.py", "cases": made}, open(sys.argv[2], "w"), indent=0)
