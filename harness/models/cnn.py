"""A plain convolutional classifier."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class CNN(nn.Module):
    """Convolution, batch norm and ReLU, a stage for each entry of ``widths``; mean over space; one linear layer.

    The first stage's kernel may be wider, as in a ResNet's stem, and every stage but those in ``strides``
    with 1 halves the image.

    Args:
        in_channels: Channels of the images.
        num_classes: Size of the output.
        widths: Channels after each stage.
        kernel_sizes: One odd number a stage, or one for all.
        strides: One a stage, or one for all.

    Raises:
        ValueError: where ``kernel_sizes`` or ``strides`` fit neither one stage nor all, or a kernel is even.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        num_classes: int,
        widths: Sequence[int] = (32, 64, 128),
        kernel_sizes: int | Sequence[int] = 3,
        strides: int | Sequence[int] = 2,
    ) -> None:
        super().__init__()
        kernels = _per_stage("kernel_sizes", kernel_sizes, len(widths))
        if any(kernel % 2 == 0 for kernel in kernels):
            raise ValueError(f"kernel_sizes must be odd, not {kernels}")
        stages: list[nn.Module] = []
        channels = in_channels
        for width, kernel, stride in zip(widths, kernels, _per_stage("strides", strides, len(widths)), strict=True):
            stages += [
                nn.Conv2d(channels, width, kernel, stride=stride, padding=kernel // 2),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            channels = width
        self.features = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, channels, height, width] to logits [batch, classes]."""
        logits: Tensor = self.head(torch.flatten(self.pool(self.features(images)), 1))
        return logits


def _per_stage(name: str, value: int | Sequence[int], stages: int) -> list[int]:
    values = [value] * stages if isinstance(value, int) else list(value)
    if len(values) != stages:
        raise ValueError(f"{name} has {len(values)} entries for {stages} widths")
    return values
