"""A decoder-only language model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.models.attention import Block


class Transformer(nn.Module):
    """A GPT: learned positions, pre-norm blocks with causal attention, the output tied to the embedding.

    Args:
        vocab_size: Number of tokens.
        context_length: Most positions that it can see.
        width, depth, heads: Vector size, number of blocks, attention heads a block.
        dropout: Probability of zeroing, in the embedding and in each block.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        context_length: int,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.context_length = context_length
        self.token = nn.Embedding(vocab_size, width)
        self.position = nn.Embedding(context_length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, causal=True, dropout=dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.apply(_initialise)
        self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [batch, positions] to logits [batch, positions, vocabulary].

        Raises:
            ValueError: for more positions than ``context_length``.
        """
        positions = tokens.shape[1]
        if positions > self.context_length:
            raise ValueError(f"{positions} positions exceed context_length={self.context_length}")
        x = self.dropout(self.token(tokens) + self.position(torch.arange(positions, device=tokens.device)))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def _initialise(module: nn.Module) -> None:
    """GPT-2's: normal weights of deviation 0.02, no bias."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
