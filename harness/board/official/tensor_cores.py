"""Which kernels run on tensor cores, told by their names.

The plugin's own list takes every `xmma_gemm` for one, also in fp32, and knows nothing that came after Ampere.
"""

from __future__ import annotations

import re

# Instruction shapes and families: Volta to Ampere, Hopper's wgmma, Blackwell's tcgen05, cuBLAS's nvjet.
_INSTRUCTION = re.compile(
    r"[hs]884|[hsci]1688|[his]16816|i8816|16832|d884|[hibdq]g?mma|wgmma|gmma_|tensorop|tcgen05|utcmma|^nvjet|"
    r"mma_\d+x\d+x\d+_"
)
# cuDNN's and cuBLAS's generated kernels name the types of their operands: f32f32_f32f32 is plain fp32.
_GENERATED = re.compile(r"xmma_")
_NARROW = re.compile(r"tf32|(?<![a-z0-9])b?f16|b?f16b?f16|bf16|i8i8|e4m3|e5m2|fp8")
# Attention kernels are written for tensor cores, unless their operands are fp32.
_ATTENTION = re.compile(r"flash_(?:fwd|bwd)|flash_attn|fmha|sdpa|attention_kernel")
_FP32_ATTENTION = re.compile(r"fmha_cutlass[fb]_f32|f32f32_f32")
# Convolutions of cuDNN 7 that exist in half precision only.
_HALF_ONLY = re.compile(r"dgrad_1x1_stride_2x2|first_layer_wgrad_kernel|conv2d_c1_k1")
_PLAIN = re.compile(r"simt|sgemm|ffma")


def uses_tensor_cores(name: str) -> bool:
    """Whether a kernel of this name does its products on tensor cores."""
    name = name.lower()
    if _PLAIN.search(name):
        return False
    if _GENERATED.search(name):
        return bool(_NARROW.search(name))
    if _INSTRUCTION.search(name) or _HALF_ONLY.search(name):
        return True
    return bool(_ATTENTION.search(name)) and not _FP32_ATTENTION.search(name)
