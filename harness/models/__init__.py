"""Plain ``torch.nn`` modules. They know nothing of the harness; the arguments that it can read off the
data (``in_channels``, ``image_size``, ``num_classes``, ``vocab_size``, ``context_length``, ``size``) it fills in.
"""

from harness.models.cnn import CNN
from harness.models.matmul import MatmulAdd
from harness.models.mlp import MLP
from harness.models.transformer import Transformer
from harness.models.vit import ViT

__all__ = ["CNN", "MLP", "MatmulAdd", "Transformer", "ViT"]
