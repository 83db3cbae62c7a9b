"""A multilayer perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with ReLU and dropout between them, over the flattened input.

    Args:
        in_channels, image_size: Shape of the input, [channels, height, width]; ``image_size`` is one side
            or (height, width).
        num_classes: Size of the output.
        hidden: Width of each hidden layer.
        dropout: Probability of zeroing a hidden unit.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        image_size: int | Sequence[int],
        num_classes: int,
        hidden: Sequence[int] = (256, 256),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        area = image_size**2 if isinstance(image_size, int) else prod(image_size)
        layers: list[nn.Module] = []
        width = in_channels * area
        for size in hidden:
            layers += [nn.Linear(width, size), nn.ReLU()]
            if dropout:
                layers.append(nn.Dropout(dropout))
            width = size
        self.layers = nn.Sequential(*layers, nn.Linear(width, num_classes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs [batch, ...] to logits [batch, classes]."""
        logits: Tensor = self.layers(torch.flatten(inputs, 1))
        return logits
