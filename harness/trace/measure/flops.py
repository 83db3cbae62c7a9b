"""FLOPs and least bytes of operator calls, from the shapes that the profiler recorded.

A multiply and an add are two operations. Formulas are those of `torch.utils.flop_counter`, which agree with
`with_flops` (torch/csrc/profiler/util.cpp) on mm, addmm, bmm, baddbmm and conv2d; its counts of one operation
an element for add and mul are left out, since no device is bound by them. Attention counts its full score
matrix, causal or not, and its backward the recomputation, as flop_counter does.

Least bytes are every input read once and every output written once: what a perfect cache would leave.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Signature, Trace

Dims = list[list[int]]
"""`Input Dims`: the shape of every argument, empty for what is no tensor."""
Texts = list[str]
"""`Concrete Inputs` or `Input type`: one text for every argument."""
Ints = NDArray[np.int64]


class Cost(NamedTuple):
    """Of each event of a trace; nan for unknown."""

    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]
    dtype: NDArray[np.int8]
    """Index into DTYPES of the first tensor; -1 for unknown."""


# What `Input type` calls a tensor's type, and bytes an element.
DTYPES = {
    "float": 4,
    "double": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1,
    "long int": 8,
    "long": 8,
    "int": 4,
    "short int": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
_DTYPE_INDEX = {name: i for i, name in enumerate(DTYPES)}
_DTYPE_BYTES = list(DTYPES.values())


def costs(trace: Trace) -> Cost:
    """FLOPs, least bytes and type of every event, each distinct call computed once. Shapes that make no sense for the
    operator count as unknown."""
    n = len(trace)
    flops, moved, dtype = np.full(n, np.nan), np.full(n, np.nan), np.full(n, -1, np.int8)
    at = np.flatnonzero((trace.signature >= 0) & (trace.kind == Kind.OPERATOR))
    at = at[trace.named(at, _is_known)]
    if not len(at):
        return Cost(flops, moved, dtype)
    pairs, which = np.unique(trace.name[at] * len(trace.signatures) + trace.signature[at], return_inverse=True)
    decoded: dict[int, _Arguments] = {}
    calls = []
    for pair in pairs.tolist():
        name, place = divmod(pair, len(trace.signatures))
        if place not in decoded:
            decoded[place] = _decoded(trace.signatures[place])
        calls.append(_cost(trace.names[name], decoded[place]))
    flops[at], moved[at], dtype[at] = (np.array(column)[which] for column in zip(*calls, strict=True))
    return Cost(flops, moved, dtype)


class _Arguments(NamedTuple):
    """Of one call, as far as they are lists."""

    dims: list[Any]
    types: list[Any]
    concrete: list[Any]


def _decoded(signature: Signature) -> _Arguments:
    return _Arguments(_json(signature.dims), _json(signature.types), _json(signature.concrete))


def _cost(name: str, arguments: _Arguments) -> tuple[float, float, int]:
    kind = name.removeprefix("aten::")
    dims, types, concrete = arguments
    dtype = next((_DTYPE_INDEX[t] for t in types if isinstance(t, str) and t in _DTYPE_INDEX), -1)
    flops = moved = math.nan
    formula = FLOPS.get(kind)
    try:
        if formula is not None:
            flops = float(formula(dims, concrete))
        output = _output_elements(kind, dims)
        if output is not None:
            moved = _input_bytes(kind, dims, types) + output * (_DTYPE_BYTES[dtype] if dtype >= 0 else math.nan)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        pass
    return flops, moved, dtype


def _json(raw: bytes) -> list[Any]:
    try:
        value = _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return []
    return value if isinstance(value, list) else []


_decode = msgspec.json.Decoder().decode


def _is_known(name: str) -> bool:
    """Whether FLOPs or least bytes can be told of an operator at all."""
    kind = name.removeprefix("aten::")
    return kind in FLOPS or kind == "copy_" or kind in FILLS or bool(_SHAPED.fullmatch(kind))


def _mm(dims: Dims, _: Texts) -> int:
    (m, k), (k2, n) = dims[0], dims[1]
    return 2 * m * _same(k, k2) * n


def _addmm(dims: Dims, _: Texts) -> int:
    return _mm(dims[1:], [])


def _bmm(dims: Dims, _: Texts) -> int:
    (b, m, k), (b2, k2, n) = dims[0], dims[1]
    return 2 * _same(b, b2) * m * _same(k, k2) * n


def _baddbmm(dims: Dims, _: Texts) -> int:
    return _bmm(dims[1:], [])


def _matmul(dims: Dims, _: Texts) -> int:
    a, b = dims[0], dims[1]
    batch = math.prod(np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2])))
    rows = a[-2] if len(a) > 1 else 1
    columns = b[-1] if len(b) > 1 else 1
    return 2 * batch * rows * _same(a[-1], b[-2] if len(b) > 1 else b[-1]) * columns


def _linear(dims: Dims, _: Texts) -> int:
    return 2 * math.prod(dims[0][:-1]) * _same(dims[0][-1], dims[1][-1]) * math.prod(dims[1][:-1])


def _mv(dims: Dims, _: Texts) -> int:
    return 2 * math.prod(dims[0])


def _addmv(dims: Dims, _: Texts) -> int:
    return 2 * math.prod(dims[1])


def _convolution(dims: Dims, concrete: Texts) -> int:
    return _convolved(dims[0], dims[1], concrete[3], concrete[4], concrete[5], concrete[6] == "True")


def _conv(dims: Dims, concrete: Texts) -> int:
    """conv1d, conv2d, conv3d; padding may be a word."""
    return _convolved(dims[0], dims[1], concrete[3], concrete[4], concrete[5], False)


def _conv_transpose(dims: Dims, _: Texts) -> int:
    return _convolved(dims[0], dims[1], "", "", "", True)


def _convolved(x: list[int], weight: list[int], stride: str, padding: str, dilation: str, transposed: bool) -> int:
    kernel = weight[2:]
    spatial = x[2:] if len(x) == len(weight) else x[1:]
    batch = x[0] if len(x) == len(weight) else 1
    if not transposed:
        strides, dilations = _per_axis(stride, len(kernel)), _per_axis(dilation, len(kernel))
        reach = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        if padding == "same":
            pads = reach
        else:
            pads = [0] * len(kernel) if padding == "valid" else [2 * p for p in _per_axis(padding, len(kernel))]
        spatial = [(n + p - r - 1) // s + 1 for n, p, r, s in zip(spatial, pads, reach, strides, strict=True)]
    return 2 * batch * math.prod(spatial) * math.prod(weight)


def _convolution_backward(dims: Dims, concrete: Texts) -> int:
    gradient, x, weight = dims[0], dims[1], dims[2]
    spatial = (x if concrete[7] == "True" else gradient)[2:]
    wanted = concrete[10].strip("[]").split(",")
    passes = sum(flag.strip() == "True" for flag in wanted[:2])
    return 2 * passes * x[0] * math.prod(spatial) * math.prod(weight)


def _per_axis(value: str, axes: int) -> list[int]:
    values = [int(v) for v in value.strip("[]").split(",")]
    return values * axes if len(values) == 1 else values


def _attention(dims: Dims, _: Texts) -> int:
    (*batch, heads, queries, width), key, value = dims[0], dims[1], dims[2]
    return 2 * math.prod(batch) * heads * queries * key[-2] * (width + value[-1])


def _attention_backward(dims: Dims, _: Texts) -> int:
    (*batch, heads, queries, width), key, value = dims[1], dims[2], dims[3]
    return 2 * math.prod(batch) * heads * queries * key[-2] * (3 * width + 2 * value[-1])


def _same(a: int, b: int) -> int:
    if a != b:
        raise ValueError(f"inner dimensions {a} and {b} differ")
    return a


FLOPS: dict[str, Callable[[Dims, Texts], int]] = {
    "mm": _mm,
    "addmm": _addmm,
    "addmm_": _addmm,
    "_addmm_activation": _addmm,
    "_scaled_mm": _mm,
    "_int_mm": _mm,
    "bmm": _bmm,
    "baddbmm": _baddbmm,
    "baddbmm_": _baddbmm,
    "matmul": _matmul,
    "linear": _linear,
    "mv": _mv,
    "addmv_": _addmv,
    "addmv": _addmv,
    "dot": _mv,
    "conv1d": _conv,
    "conv2d": _conv,
    "conv3d": _conv,
    "conv_transpose1d": _conv_transpose,
    "conv_transpose2d": _conv_transpose,
    "conv_transpose3d": _conv_transpose,
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "_scaled_dot_product_flash_attention_backward": _attention_backward,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "_scaled_dot_product_cudnn_attention_backward": _attention_backward,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}

# One output element for each element of the broadcast inputs; in-place forms read and write the first.
ELEMENTWISE = re.compile(
    r"(?:add|sub|mul|div|neg|abs|exp|log|sqrt|rsqrt|pow|reciprocal|relu|gelu|silu|sigmoid|tanh|elu|softplus|erf|"
    r"clamp(?:_min|_max)?|threshold|leaky_relu|hardtanh|where|masked_fill|maximum|minimum|eq|ne|lt|gt|le|ge|"
    r"logical_(?:and|or|not)|addcmul|addcdiv|lerp|native_dropout|sin|cos|floor|ceil|round|sign|square|cumsum|"
    r"_softmax|_log_softmax|native_layer_norm|native_group_norm|_fused_rms_norm|clone|contiguous|"
    r"(?:cudnn_|native_|miopen_)batch_norm)(?:_backward(?:_data)?)?_?"
)
REDUCTION = re.compile(r"sum|mean|amax|amin|max|min|prod|norm|linalg_vector_norm|var|std|argmax|argmin|all|any")
_SHAPED = re.compile(f"(?:{ELEMENTWISE.pattern})|(?:{REDUCTION.pattern})")
FILLS = frozenset({"fill_", "zero_"})


def _output_elements(kind: str, dims: Dims) -> int | None:
    """Elements written, for operators of which that is known."""
    formula = FLOPS.get(kind)
    factors = dims[1:3] if formula in (_addmm, _baddbmm) else dims[:2]
    if formula in (_mm, _addmm, _bmm, _baddbmm):
        left, right = factors
        return math.prod(left[:-1]) * right[-1]
    if ELEMENTWISE.fullmatch(kind):
        tensors = [d for d in dims if d and not isinstance(d[0], list)]
        return max(math.prod(t) for t in tensors)
    if kind == "copy_":
        return math.prod(dims[0])
    if kind in FILLS:
        return math.prod(dims[0])
    if REDUCTION.fullmatch(kind):
        return 0
    return None


def _input_bytes(kind: str, dims: Dims, types: Texts) -> float:
    """Bytes of all tensors read."""
    if kind in FILLS:
        return 0.0
    total = 0.0
    for place, (shape, dtype) in enumerate(zip(dims, types, strict=False)):
        if kind == "copy_" and place == 0:
            continue
        if isinstance(dtype, str) and dtype in DTYPES:
            total += math.prod(shape) * DTYPES[dtype]
    return total
