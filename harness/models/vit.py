"""A small vision transformer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from harness.models.attention import Block


class ViT(nn.Module):
    """Patches as tokens, a class token, pre-norm blocks (Dosovitskiy et al., 2020).

    Args:
        in_channels, image_size: Shape of the images; ``image_size`` is one side or (height, width).
        num_classes: Size of the output.
        patch_size: Side of a patch; it must divide both sides of the image.
        width, depth, heads: Vector size, number of blocks, attention heads a block.
        dropout: Probability of zeroing, in the embedding and in each block.

    Raises:
        ValueError: where ``patch_size`` does not divide the image.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        image_size: int | Sequence[int],
        num_classes: int,
        patch_size: int = 4,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        height, width_px = (image_size, image_size) if isinstance(image_size, int) else image_size
        if height % patch_size or width_px % patch_size:
            raise ValueError(f"patch_size {patch_size} does not divide an image of {height}×{width_px}")
        patches = (height // patch_size) * (width_px // patch_size)
        self.patchify = nn.Conv2d(in_channels, width, patch_size, stride=patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, patches + 1, width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False, dropout=dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, channels, height, width] to logits [batch, classes]."""
        patches = self.patchify(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), patches], dim=1)
        x = self.blocks(self.dropout(tokens + self.position))
        logits: Tensor = self.head(self.norm(x[:, 0]))
        return logits
