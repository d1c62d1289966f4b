#!/usr/bin/env python3
"""Orders of Python's generator and of webdataset where the seed is a text, and webdataset's where it is none: make_texts.py OUT

CPython 3.11, webdataset 1.0.2. Each DataLoader worker is stood in for by what it would be told of itself.
"""
import json, os, platform, random, sys
from importlib.metadata import version

from record import record

TEXTS = ["", "a", "42", "WDS \u00e9\u00fc \u6f22", "x" * 300]


def shards(n, seed, buffer, worker, workers):
    """The shards that a loader's worker opens, through the pipeline that WebDataset itself has built."""
    os.environ["WORKER"], os.environ["NUM_WORKERS"] = str(worker), str(workers)
    import webdataset

    dataset = webdataset.WebDataset([f"{i}.tar" for i in range(n)], shardshuffle=buffer, seed=seed, empty_check=False)
    stages = dataset.pipeline
    opener = next(i for i, stage in enumerate(stages) if "Open" in type(stage).__name__ or "FileCache" in type(stage).__name__)
    items = stages[0]
    out = items.run() if hasattr(items, "run") else iter(items)
    for stage in stages[1:opener]:
        out = stage(out) if callable(stage) else stage.run(out)
    return dataset.seed, [int(item["url"].split(".")[0]) for item in out]


def main(out):
    cases = []
    for text in TEXTS:
        for n in [1, 37, 1000]:
            random.seed(text)
            order = list(range(n))
            epochs = []
            for _ in range(3):
                random.shuffle(order)
                epochs.append(record(list(order)))
            cases.append(dict(op="shuffle_in_place", seed=text, n=n, epochs=epochs))
            random.seed(text)
            cases.append(dict(op="sample", seed=text, n=n, k=n // 2 + 1, epochs=[record(random.sample(range(n), n // 2 + 1))]))
    for text in TEXTS[1:4]:
        os.environ["WDS_SEED"] = text
        for n, buffer, workers in [(50, 100, 1), (300, 100, 1), (300, 1000, 3)]:
            for worker in range(workers):
                _, order = shards(n, None, buffer, worker, workers)
                cases.append(dict(op="wds_seed", seed=text, n=n, buffer=buffer, worker=worker, workers=workers, epochs=[record(order)]))
    del os.environ["WDS_SEED"]
    for begin in [0, 42]:
        random.seed(begin)
        seed, order = shards(300, None, 100, 0, 1)
        assert 0 <= seed <= 1000000
        cases.append(dict(op="no_seed", seed=seed, n=300, buffer=100, worker=0, workers=1, epochs=[record(order)]))
    lib = {"python": platform.python_version(), "webdataset": version("webdataset")}
    with open(out, "w") as file:
        file.write(json.dumps({"lib": lib, "cases": cases}, indent=0))


main(*sys.argv[1:])
