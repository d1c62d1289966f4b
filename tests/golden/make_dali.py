#!/usr/bin/env python3
"""Orders of DALI's file reader with shuffle_after_epoch: make_dali.py FOLDER OUT

FOLDER is made, and filled with small files. With nvidia-dali 1.53.0 (dali_each_epoch.153) and 2.4.0 (dali_each_epoch.24); 2.0.0 and 2.1.1 give what
1.53.0 does, 2.2.0 and 2.3.0 what 2.4.0 does. No GPU is needed.
"""
import json, os, sys

import nvidia.dali
from nvidia.dali import fn, pipeline_def

from record import record


def epochs(folder, n, world, rank, checkpointing, seed):
    files = [f"{folder}/{i}.bin" for i in range(n)]
    for name in files:
        if not os.path.exists(name):
            open(name, "wb").write(b"x")
    more = {} if seed is None else {"shuffle_after_epoch_seed": seed}

    @pipeline_def(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1, enable_checkpointing=checkpointing)
    def pipeline():
        _, label = fn.readers.file(files=files, labels=list(range(n)), shard_id=rank, num_shards=world, shuffle_after_epoch=True, **more)
        return label

    made = pipeline()
    made.build()
    count = (rank + 1) * n // world - rank * n // world
    return [record([int(made.run()[0].as_array()[0][0]) for _ in range(count)]) for _ in range(3)]


def main(folder, out):
    version = nvidia.dali.__version__
    os.makedirs(folder, exist_ok=True)
    cases = []
    seeds = [None] if version < "2.2" else [None, 7, -1, (1 << 40) + 3]
    for n, world, rank in [(1, 1, 0), (10, 1, 0), (37, 1, 0), (1000, 4, 1), (2000, 1, 0), (70001, 1, 0)]:
        for seed in seeds:
            for checkpointing in [False, True]:
                if n < 10000 or (seed is None and not checkpointing):
                    cases.append(dict(n=n, world=world, rank=rank, seed=seed, checkpointing=checkpointing,
                                      epochs=epochs(folder, n, world, rank, checkpointing, seed)))
    with open(out, "w") as file:
        file.write(json.dumps({"lib": {"nvidia-dali": version}, "cases": cases}, indent=0))


main(*sys.argv[1:])
