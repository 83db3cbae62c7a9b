"""What a job trains on, and the loader that feeds it batch by numbered batch."""

from harness.data.sets import (
    Batch,
    Digits,
    Loader,
    SyntheticImages,
    SyntheticMatrices,
    SyntheticTokens,
    Text,
    cifar10,
    facts,
    image_folder,
    map_tensors,
    to_device,
)

__all__ = [
    "Batch",
    "Digits",
    "Loader",
    "SyntheticImages",
    "SyntheticMatrices",
    "SyntheticTokens",
    "Text",
    "cifar10",
    "facts",
    "image_folder",
    "map_tensors",
    "to_device",
]
