"""Image data sets on disk, made for a test."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
from PIL import Image


def make_image_folder(root: Path, *, splits: tuple[str, ...] = ("train", "eval"), each: int = 4) -> Path:
    """``<root>/<split>/<class>/<n>.png``: two classes, ``each`` pictures a class, of different sizes."""
    random = np.random.default_rng(0)
    for split in splits:
        for label in ("cat", "dog"):
            (root / split / label).mkdir(parents=True)
            for number in range(each):
                pixels = random.integers(0, 256, (20 + number, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / label / f"{number}.png")
    return root


CIFAR_MODULE = """\
from torchvision.datasets import CIFAR10

CIFAR10.train_list = {train}
CIFAR10.test_list = {test}
CIFAR10.meta = {{**CIFAR10.meta, "md5": {meta!r}}}

from harness.data import cifar10
"""
"""torchvision knows the checksums of the real files; this tells it those of the made ones."""


def make_cifar10(root: Path, *, each: int = 20) -> str:
    """CIFAR-10's files as they are on disk, with ``each`` noise pictures in a file.

    Returns:
        The text of a module whose ``cifar10`` is ours, and that makes torchvision take the files for the real ones.
    """
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)

    def write(name: str, content: dict[str, object]) -> str:
        written = pickle.dumps(content, protocol=2)
        (folder / name).write_bytes(written)
        return hashlib.md5(written).hexdigest()

    def batch(name: str) -> list[str]:
        content = {
            "batch_label": name,
            "data": random.integers(0, 256, (each, 3072), dtype=np.uint8),
            "labels": [int(label) for label in random.integers(0, 10, each)],
            "filenames": [f"{number}.png" for number in range(each)],
        }
        return [name, write(name, content)]

    train = [batch(f"data_batch_{number}") for number in range(1, 6)]
    test = [batch("test_batch")]
    labels = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    meta = write("batches.meta", {"label_names": labels, "num_cases_per_batch": each, "num_vis": 3072})
    return CIFAR_MODULE.format(train=train, test=test, meta=meta)
