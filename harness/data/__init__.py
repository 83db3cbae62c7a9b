"""What a job trains on, and the loader that feeds it batch by numbered batch."""

from harness.data.batch import Batch, map_tensors, to_device
from harness.data.loader import Loader
from harness.data.sets import Digits, Text, cifar10, facts, image_folder
from harness.data.synthetic import SyntheticImages, SyntheticMatrices, SyntheticTokens

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
