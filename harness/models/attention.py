"""The pre-norm block that the language model and the vision transformer share."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Self-attention by ``scaled_dot_product_attention``, then a feed-forward layer, each on a residual path.

    Args:
        width: Size of each position's vector; a multiple of ``heads``.
        heads: Attention heads.
        causal: Whether a position sees only itself and those before it.
        dropout: Probability of zeroing an entry of either path's output.
        expansion: Width of the feed-forward layer, in multiples of ``width``.

    Raises:
        ValueError: where ``heads`` does not divide ``width``.
    """

    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float = 0.0, expansion: int = 4) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is no multiple of heads {heads}")
        self.heads = heads
        self.causal = causal
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, expansion * width), nn.GELU(), nn.Linear(expansion * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, positions, width] to the same shape."""
        x = x + self.dropout(self._attend(self.attention_norm(x)))
        out: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return out

    def _attend(self, x: Tensor) -> Tensor:
        batch, positions, width = x.shape
        query, key, value = (
            self.qkv(x).view(batch, positions, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, positions, width))
        return out
