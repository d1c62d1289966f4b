#!/usr/bin/env python3
"""Orders as trainers have them: make_trainers.py OUT

accelerate 1.7.0 (dispatch_batches=True, what rank 0 of 4 reads), transformers 4.28.1 (Trainer before it used accelerate's loaders),
pytorch-lightning 2.0.9 (its distributed samplers), torch 1.13.
"""
import json, os, sys, tempfile

import torch
from torch.utils.data import DataLoader, Dataset

from record import record


class Numbers(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"x": torch.tensor([i])}


def read(loader):
    return record(i for batch in loader for i in batch["x"].flatten().tolist())


def dispatch():
    from accelerate.data_loader import prepare_data_loader

    for n, batch in [(37, 5), (1000, 8)]:
        for seedable in [False, True]:
            torch.manual_seed(42)
            loader = prepare_data_loader(DataLoader(Numbers(n), batch_size=batch, shuffle=True), device=torch.device("cpu"),
                                         num_processes=4, process_index=0, put_on_device=True, dispatch_batches=True, use_seedable_sampler=seedable)
            yield dict(op="dispatch", seedable=seedable, n=n, epochs=[read(loader) for _ in range(3)])


def trainer():
    from transformers import Trainer, TrainingArguments

    for n in [37, 1000]:
        for data_seed in [None, 7]:
            with tempfile.TemporaryDirectory() as folder:
                args = TrainingArguments(output_dir=folder, data_seed=data_seed, no_cuda=True, remove_unused_columns=False, report_to=[], per_device_train_batch_size=8)
                trainer = Trainer(model=torch.nn.Linear(1, 1), args=args, train_dataset=Numbers(n), data_collator=torch.utils.data.default_collate)
                torch.manual_seed(args.seed)  # as at the begin of train()
                loader = trainer.get_train_dataloader()
                yield dict(op="trainer", seed=args.seed, data_seed=data_seed, n=n, epochs=[read(loader) for _ in range(3)])


def lightning():
    from pytorch_lightning.trainer.connectors.data_connector import _get_distributed_sampler
    from pytorch_lightning.trainer.states import RunningStage

    os.environ["PL_GLOBAL_SEED"] = "7"
    for n, world, rank in [(37, 4, 1), (1000, 3, 2)]:
        for mode in [RunningStage.TRAINING, RunningStage.VALIDATING, RunningStage.PREDICTING]:
            shuffle = mode == RunningStage.TRAINING
            sampler = _get_distributed_sampler(DataLoader(Numbers(n), shuffle=shuffle), shuffle, 0.0, mode, num_replicas=world, rank=rank)
            epochs = []
            for epoch in range(3):
                sampler.set_epoch(epoch)
                epochs.append(record(sampler))
            yield dict(op="lightning", mode=mode.value, n=n, world=world, rank=rank, epochs=epochs)


def main(out):
    cases = [*dispatch(), *trainer(), *lightning()]
    with open(out, "w") as file:
        file.write(json.dumps({"lib": {"accelerate": "1.7.0", "transformers": "4.28.1", "pytorch-lightning": "2.0.9", "torch": torch.__version__}, "cases": cases}, indent=0))


main(*sys.argv[1:])
