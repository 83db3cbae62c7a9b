"""Sets of real samples, and what a model has to know of any set.

That (:func:`facts`) a set either declares as ``facts`` or shows in a sample.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from harness.errors import UsageError

Split = Literal["train", "eval"]


class Digits(Dataset[tuple[Tensor, Tensor]]):
    """scikit-learn's 1,797 handwritten digits: images float [1, 8, 8] in 0..1 and labels 0..9.

    They ship with scikit-learn (from the UCI repository), so nothing is downloaded. Every fifth, in a
    fixed shuffled order, is kept for evaluation.
    """

    def __init__(self, split: Split = "train") -> None:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(labels))
        kept = order[np.arange(len(order)) % 5 == 0] if split == "eval" else order[np.arange(len(order)) % 5 != 0]
        self.images = torch.tensor(images[kept] / 16, dtype=torch.float32).view(-1, 1, 8, 8)
        self.labels = torch.tensor(labels[kept], dtype=torch.int64)
        self.facts = {"kind": "images", "in_channels": 1, "image_size": (8, 8), "num_classes": 10}

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.images[indices], self.labels[indices]


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Text in pieces of ``context_length`` tokens, each with the token that follows: int64 [context_length] both.

    Args:
        file: A text file; None takes Python's own help topics (``pydoc_data.topics``, about 700 kB).
        level: A token is a character, or a byte of the text in UTF-8.
        context_length: Tokens of a sample.
        split: The last tenth of the text is kept for evaluation.

    Raises:
        UsageError: for a file that is not there, is not UTF-8, or is shorter than two samples.
    """

    def __init__(
        self,
        split: Split = "train",
        *,
        file: str | None = None,
        level: Literal["characters", "bytes"] = "characters",
        context_length: int = 128,
    ) -> None:
        text = _read_text(file)
        if level == "bytes":
            codes, vocab_size = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64), 256
        else:
            alphabet, codes = np.unique(np.array(list(text)), return_inverse=True)
            vocab_size = len(alphabet)
        cut = len(codes) * 9 // 10
        self.tokens = torch.tensor(codes[:cut] if split == "train" else codes[cut:], dtype=torch.int64)
        self.context_length = context_length
        if len(self) < 1:
            raise UsageError(
                f"data: {file or 'the text'} has {len(self.tokens)} tokens in its {split} part, "
                f"fewer than one sample of context_length={context_length}; give a longer file or a shorter context"
            )
        self.facts = {"kind": "tokens", "vocab_size": vocab_size, "context_length": context_length}

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.context_length)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.context_length
        piece = self.tokens[start : start + self.context_length + 1]
        return piece[:-1], piece[1:]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        positions = indices[:, None] * self.context_length + torch.arange(self.context_length)
        return self.tokens[positions], self.tokens[positions + 1]


def _read_text(file: str | None) -> str:
    if file is None:
        return "\n".join(text for _, text in sorted(import_module("pydoc_data.topics").topics.items()))
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"data: the text file {file} cannot be read: {error}") from error


def image_folder(split: Split = "train", *, root: str, image_size: int = 224) -> Dataset[Any]:
    """torchvision's ``ImageFolder`` on ``<root>/<split>/<class>/*.jpg`` (``val`` will do for ``eval``).

    Training crops and flips at random; evaluation crops the centre.

    Raises:
        UsageError: where the folder or its images are not there.
    """
    from torchvision.datasets import ImageFolder

    names = ["train"] if split == "train" else ["eval", "val"]
    folder = next((Path(root) / name for name in names if (Path(root) / name).is_dir()), None)
    if folder is None:
        raise UsageError(
            f"data.{split}.root={root}: there is no folder {' or '.join(names)} in it; "
            f"image_folder reads {root}/{names[0]}/<class>/<image>"
        )
    try:
        dataset: Dataset[Any] = ImageFolder(str(folder), transform=_image_transform(split, image_size))
        return dataset
    except FileNotFoundError as error:
        raise UsageError(f"data.{split}.root={root}: {error}") from error


def cifar10(split: Split = "train", *, root: str, download: bool = False) -> Dataset[Any]:
    """CIFAR-10 through torchvision: images [3, 32, 32], ten classes.

    Raises:
        UsageError: where the files are not in ``root`` and may not, or cannot, be downloaded.
    """
    from torchvision.datasets import CIFAR10

    try:
        dataset: Dataset[Any] = CIFAR10(
            root, train=split == "train", download=download, transform=_image_transform(split, 32, padding=4)
        )
        return dataset
    except (RuntimeError, OSError) as error:
        advice = (
            "put cifar-10-batches-py there"
            if download
            else "put cifar-10-batches-py there, or allow data.train.download=true"
        )
        raise UsageError(f"data.{split}.root={root}: CIFAR-10 is not there ({error}); {advice}") from error


def _image_transform(split: Split, size: int, *, padding: int = 0) -> Any:
    from torchvision.transforms import v2

    if padding:
        geometry = [v2.RandomCrop(size, padding=padding), v2.RandomHorizontalFlip()] if split == "train" else []
    elif split == "train":
        geometry = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
    else:
        geometry = [v2.Resize(size * 8 // 7), v2.CenterCrop(size)]
    return v2.Compose([v2.ToImage(), *geometry, v2.ToDtype(torch.float32, scale=True)])


def facts(dataset: Any) -> dict[str, Any]:
    """What a model or a task can ask of its data, by the name of the argument that takes it.

    ``kind`` (images, tokens, ...), and for images ``in_channels``, ``image_size`` (height, width) and
    ``num_classes``, for tokens ``vocab_size`` and ``context_length``. A set without ``facts`` of its own is
    judged by its first sample and its ``classes``; what cannot be told is left out.
    """
    declared = getattr(dataset, "facts", None)
    if declared is not None:
        return dict(declared)
    found: dict[str, Any] = {}
    sample = dataset[0]
    inputs = sample[0] if isinstance(sample, tuple | list) else sample
    if isinstance(inputs, Tensor) and inputs.ndim == 3 and inputs.is_floating_point():
        channels, height, width = inputs.shape
        found = {"kind": "images", "in_channels": channels, "image_size": (height, width)}
    elif isinstance(inputs, Tensor) and inputs.ndim == 1 and not inputs.is_floating_point():
        found = {"kind": "tokens", "context_length": len(inputs)}
    for name, attribute in (("num_classes", "classes"), ("vocab_size", "vocab_size")):
        value = getattr(dataset, attribute, None)
        if value is not None:
            found[name] = value if isinstance(value, int) else len(value)
    return found
