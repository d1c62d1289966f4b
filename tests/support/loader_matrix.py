#!/usr/bin/env python3
"""A training loop as people write them, in every usual shape: ImageFolder, a sampler, a DataLoader. It declares nothing to the mount.

loader_matrix.py TRAIN --log DIR [--sampler random|distributed|elastic|weighted|entropy|buffer|access] [--seed S] [--epochs E] [--workers N]
                 [--batch B] [--persistent] [--drop-last] [--val DIR] [--model] [--flip] [--world W --rank R] [--start SAMPLES]
                 [--limit SAMPLES] [--pause SECONDS] [--order FILE] [--barrier N] [--beside DIR]...

Without --seed nothing is seeded. Samplers of torch: random (`shuffle=True`), distributed, elastic (PyTorch's elastic example: goes on behind
--start samples of the whole job), weighted. Orders that nobody can know: entropy (numpy's generator, seeded by the OS), buffer (tf.data's
shuffle buffer), access (any file, with repeats). --limit ends the run after so many samples of this process. --order: the mount's
`.belady/order`, read before each epoch. --barrier waits for so many processes as `init_process_group` does. --beside: each file is read there,
too, each directory in turn first.

Each process that opens files writes `DIR/opens.PID`: a line per open with the time (seconds since 1970) and v (validation) or t, before the
open. Prints JSON lines: `begin`, one `epoch` before each epoch, one `done` after it.
"""
import argparse, json, os, random, sys, time

import numpy
import torch
from torch.utils.data import DataLoader, DistributedSampler, Sampler, WeightedRandomSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import RandomHorizontalFlip

# files of an epoch's begin that are looked for in what the mount foretells (it shows 64)
FIRST = 32

p = argparse.ArgumentParser()
p.add_argument("train")
p.add_argument("--log", required=True)
p.add_argument("--sampler", default="random")
p.add_argument("--seed", type=int)
p.add_argument("--epochs", type=int, default=3)
p.add_argument("--workers", type=int, default=2)
p.add_argument("--batch", type=int, default=32)
p.add_argument("--persistent", action="store_true")
p.add_argument("--drop-last", action="store_true")
p.add_argument("--val")
p.add_argument("--model", action="store_true")
p.add_argument("--flip", action="store_true")
p.add_argument("--world", type=int, default=1)
p.add_argument("--rank", type=int, default=0)
p.add_argument("--start", type=int, default=0)
p.add_argument("--first-epoch", type=int, default=0)
p.add_argument("--limit", type=int)
p.add_argument("--pause", type=float, default=0.0)
p.add_argument("--order")
p.add_argument("--barrier", type=int, default=0)
p.add_argument("--beside", action="append", default=[])
a = p.parse_args()


def say(event, **values):
    print(json.dumps({"event": event, **values}), flush=True)


logs = {}
turns = [0]


def read(path):
    pid = os.getpid()
    if pid not in logs:
        logs[pid] = os.open(os.path.join(a.log, f"opens.{pid}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kind = "v" if a.val and path.startswith(a.val) else "t"
    os.write(logs[pid], f"{time.time():.6f} {kind}\n".encode())
    paths = [path] + [folder + path[len(a.train):] for folder in a.beside]
    turns[0] += 1
    for at in range(len(paths)):
        with open(paths[(at + turns[0]) % len(paths)], "rb") as f:
            data = f.read()
    return torch.tensor([len(data), 0]).reshape(1, 2, 1)


class Numbered(ImageFolder):
    """With the sample's number in place of its class: the loop learns in which order it read."""

    def __getitem__(self, index):
        return super().__getitem__(index)[0], index


class Elastic(DistributedSampler):
    """pytorch/elastic, examples/imagenet: ElasticDistributedSampler."""

    start = 0

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.epoch)
        indices = torch.randperm(len(self.dataset), generator=g).tolist()
        indices += indices[: self.total_size - len(indices)]
        return iter(indices[self.start + self.rank : self.total_size : self.num_replicas])


class Entropy(Sampler):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(numpy.random.default_rng().permutation(self.n).tolist())


class Buffer(Entropy):
    def __iter__(self):
        draw, held = random.SystemRandom(), []
        for index in range(self.n):
            held.append(index)
            if len(held) > 1_000:
                at = draw.randrange(len(held))
                held[at], held[-1] = held[-1], held[at]
                yield held.pop()
        draw.shuffle(held)
        yield from held


class Access(Entropy):
    def __iter__(self):
        draw = random.SystemRandom()
        return iter(draw.randrange(self.n) for _ in range(self.n))


if a.seed is not None:
    torch.manual_seed(a.seed)
if a.model:
    torch.nn.Sequential(torch.nn.Linear(192, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
dataset = Numbered(a.train, loader=read, transform=RandomHorizontalFlip() if a.flip else None)
n = len(dataset)
for folder in a.beside:
    ImageFolder(folder)
sampler = {
    "random": lambda: None,
    "distributed": lambda: DistributedSampler(dataset, num_replicas=a.world, rank=a.rank, seed=a.seed or 0),
    "elastic": lambda: Elastic(dataset, num_replicas=a.world, rank=a.rank),
    # as if classes were of very different sizes
    "weighted": lambda: WeightedRandomSampler([1.0 / (1 + target % 7) for target in dataset.targets], n),
    "entropy": lambda: Entropy(n),
    "buffer": lambda: Buffer(n),
    "access": lambda: Access(n),
}[a.sampler]()
options = {"batch_size": a.batch, "num_workers": a.workers}
loader = DataLoader(
    dataset, sampler=sampler, shuffle=sampler is None, drop_last=a.drop_last, persistent_workers=a.persistent and a.workers > 0, **options
)
val = DataLoader(ImageFolder(a.val, loader=read), shuffle=False, **options) if a.val else None


def seed_to_come():
    """The seed that RandomSampler will draw in an epoch with new workers, from a copy of the default generator."""
    copy = torch.Generator()
    copy.set_state(torch.get_rng_state())
    torch.empty((), dtype=torch.int64).random_(generator=copy)  # the loader's base seed
    return torch.empty((), dtype=torch.int64).random_(generator=copy).item() & 0xFFFFFFFF


def foretold():
    if a.order is None:
        return []
    with open(a.order) as f:
        return [line.rstrip("\n") for line in f if not line.startswith("#")]


say("begin", torch=torch.__version__, files=n, pid=os.getpid())
if a.barrier:
    open(os.path.join(a.log, f"ready.{os.getpid()}"), "w").close()
    until = time.monotonic() + 120
    while sum(name.startswith("ready.") for name in os.listdir(a.log)) < a.barrier:
        if time.monotonic() > until:
            sys.exit("not all processes came")
        time.sleep(0.01)

left = a.limit if a.limit is not None else float("inf")
for epoch in range(a.first_epoch, a.first_epoch + a.epochs):
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    if isinstance(sampler, Elastic):
        sampler.start = a.start if epoch == a.first_epoch else 0
    time.sleep(a.pause if epoch > a.first_epoch else 0)
    shown = foretold()
    say("epoch", epoch=epoch, seed=seed_to_come() if a.sampler == "random" else None)
    began, samples, first = time.time(), 0, []
    for _, numbers in loader:
        samples += len(numbers)
        if len(first) < FIRST:
            first += [dataset.samples[number][0] for number in numbers.tolist()]
        if samples >= left:
            break
    left -= samples
    # the mount names files from its root on
    hits = sum(any(path.endswith("/" + name) for name in shown) for path in first[:FIRST])
    say("done", epoch=epoch, samples=samples, seconds=round(time.time() - began, 3), first=len(first[:FIRST]), foretold=hits)
    if left <= 0:
        break
    if val is not None:
        for _ in val:
            pass
say("end")
