"""FLOPs and least bytes of single calls; `test_live.py` asks torch for the same."""

import json
import math

import pytest

from harness.trace.file.columns import Signature
from harness.trace.measure.flops import call_cost

NONE = [[], [], []]


def cost(name: str, dims: list, types: list[str] | None = None, concrete: list[str] | None = None):
    types = types or ["float" if shape else "" for shape in dims]
    texts = [json.dumps(value).encode() for value in (dims, types, concrete or [""] * len(dims))]
    return call_cost(name, Signature(*texts))[:2]


@pytest.mark.parametrize(
    ("name", "dims", "types", "flops", "bytes"),
    [
        ("aten::mm", [[8, 4], [4, 2]], None, 2 * 8 * 4 * 2, 4 * (32 + 8 + 16)),
        ("aten::mm", [[8, 4], [4, 2]], ["c10::BFloat16"] * 2, 2 * 8 * 4 * 2, 2 * (32 + 8 + 16)),
        ("aten::addmm", [[2], [8, 4], [4, 2], [], []], None, 2 * 8 * 4 * 2, 4 * (2 + 32 + 8 + 16)),
        ("aten::bmm", [[3, 8, 4], [3, 4, 2]], None, 3 * 2 * 8 * 4 * 2, 4 * 3 * (32 + 8 + 16)),
    ],
)
def test_products(name: str, dims: list, types: list[str] | None, flops: float, bytes: float):
    assert cost(name, dims, types) == (flops, bytes)


@pytest.mark.parametrize(
    ("name", "dims", "bytes"),
    [
        ("aten::add", [[1024], [1024], []], 3 * 4096),
        ("aten::add_", [[1024], [1], []], 2 * 4096 + 4),
        ("aten::copy_", [[1024], [1024], []], 2 * 4096),
        ("aten::fill_", [[1024], []], 4096),
        ("aten::sum", [[1024], []], 4096),
        ("aten::threshold_backward", [[1024], [1024], []], 3 * 4096),
    ],
)
def test_bytes_of_memory_operators(name: str, dims: list, bytes: float):
    flops, moved = cost(name, dims)
    assert math.isnan(flops)
    assert moved == bytes


@pytest.mark.parametrize(
    ("name", "dims", "concrete"),
    [
        ("aten::mm", [[8, 4], [5, 2]], None),
        ("aten::mm", [], None),
        ("aten::mm", [[8], [4, 2]], None),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3], *NONE, *NONE, []], [""] * 9),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3], *NONE], None),
        ("aten::scaled_dot_product_attention", [[4], [4], [4]], None),
        ("aten::_unheard_of", [[1024]], None),
    ],
)
def test_shapes_that_make_no_sense_are_unknown_and_no_error(name: str, dims: list, concrete: list[str] | None):
    assert math.isnan(cost(name, dims, concrete=concrete)[0])


def test_undecodable_arguments_are_unknown():
    flops, moved, dtype = call_cost("aten::mm", Signature(b"[[8, 4", b"{}", b""))
    assert math.isnan(flops)
    assert math.isnan(moved)
    assert dtype == -1
