#!/usr/bin/env python3
"""How programs list files: sequences.py ROOT prints {rule: [paths below ROOT]} as one JSON object, each made by the library it names.

With torchvision where it is here ("imagefolder" and "datasetfolder@npy" are left out otherwise).
"""
import csv, glob, json, os, re, sys
from pathlib import Path

root = sys.argv[1]


def walk():
    return [os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs]


def natural(path):
    return [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", path)]


def files(paths):
    return [p for p in paths if os.path.isfile(p)]


rules = {
    "sorted": sorted(walk()),
    "glob": files(sorted(glob.glob(root + "/**", recursive=True))),
    "components": [str(p) for p in sorted(Path(root).rglob("*")) if p.is_file()],
    "walk": walk(),
    "natural": sorted(sorted(walk()), key=natural),
    "stem": sorted(sorted(walk()), key=lambda p: Path(p).stem),
    "basename": sorted(sorted(walk()), key=os.path.basename),
    "sorted@jpg": sorted(p for p in walk() if p.endswith(".jpg")),
    "walk@jpg": [str(p) for p in Path(root).rglob("*.jpg")],
    "components@JPG+jpg": [str(p) for p in sorted(Path(root).rglob("*")) if p.suffix in (".jpg", ".JPG")],
}
# Other programs that list alike.
same = [
    ("components", [p for p in files(glob.glob(root + "/**", recursive=True, include_hidden=True))]),
    ("walk", [str(p) for p in Path(root).rglob("*") if p.is_file()]),
]
for rule, paths in same:
    assert paths == rules[rule], (rule, paths, rules[rule])
for d, dirs, names in os.walk(root):
    listed = os.listdir(d)
    assert listed == sorted(listed), listed

with open(root + "/labels.csv", newline="") as f:
    rules["manifest:mount:labels.csv"] = [os.path.join(root, row["file"]) for row in csv.DictReader(f)]
with open(root + "/records.jsonl") as f:
    rules["manifest:mount:records.jsonl"] = [os.path.join(root, json.loads(line)["image"]["path"]) for line in f]
with open(root + "/lists.json") as f:
    content = json.load(f)
    rules["manifest@train:mount:lists.json"] = [os.path.join(root, p) for p in content["train"]]
    rules["manifest:mount:lists.json"] = [os.path.join(root, p) for p in content["val"]]  # the longer one
with open(root + "/coco.json") as f:
    coco = json.load(f)
    images = {image["id"]: image for image in coco["images"]}
    annotated = {annotation["image_id"] for annotation in coco["annotations"]}
    rules["coco:mount:coco.json"] = [os.path.join(root, images[i]["file_name"]) for i in sorted(images)]
    rules["coco-annotated:mount:coco.json"] = [os.path.join(root, images[i]["file_name"]) for i in sorted(images) if i in annotated]

try:
    from torchvision.datasets import DatasetFolder, ImageFolder

    rules["imagefolder"] = [p for p, _ in ImageFolder(root, is_valid_file=None).samples]
    rules["datasetfolder@npy"] = [p for p, _ in DatasetFolder(os.path.join(root, "arrays"), loader=None, extensions=(".npy",)).samples]
except ImportError:
    pass
print(json.dumps({rule: [os.path.relpath(p, root) for p in paths] for rule, paths in rules.items()}))
