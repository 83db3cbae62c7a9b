"""FLOPs and least bytes of single calls; `test_live.py` asks torch for the same."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.trace import read
from harness.trace.measure.flops import costs
from tests.trace.conftest import op

NONE = [[], [], []]
Cost = Callable[..., tuple[float, float, int]]


@pytest.fixture
def cost(tmp_path: Path) -> Cost:
    """FLOPs, least bytes and type of one call in a file."""

    def _cost(name: str, dims: Any, types: Any = None, concrete: Any = None) -> tuple[float, float, int]:
        arguments = {
            "Input Dims": dims,
            "Input type": types or ["float" if shape else "" for shape in dims],
            "Concrete Inputs": concrete or [""] * len(dims),
        }
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [op(name, 0, 1, 1, **arguments)]}))
        found = costs(read(path))
        return float(found.flops[0]), float(found.bytes[0]), int(found.dtype[0])

    return _cost


@pytest.mark.parametrize(
    ("name", "dims", "types", "flops", "bytes"),
    [
        ("aten::mm", [[8, 4], [4, 2]], None, 2 * 8 * 4 * 2, 4 * (32 + 8 + 16)),
        ("aten::mm", [[8, 4], [4, 2]], ["c10::BFloat16"] * 2, 2 * 8 * 4 * 2, 2 * (32 + 8 + 16)),
        ("aten::addmm", [[2], [8, 4], [4, 2], [], []], None, 2 * 8 * 4 * 2, 4 * (2 + 32 + 8 + 16)),
        ("aten::bmm", [[3, 8, 4], [3, 4, 2]], None, 3 * 2 * 8 * 4 * 2, 4 * 3 * (32 + 8 + 16)),
    ],
)
def test_products(cost: Cost, name: str, dims: list, types: list[str] | None, flops: float, bytes: float):
    assert cost(name, dims, types)[:2] == (flops, bytes)


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
def test_bytes_of_memory_operators(cost: Cost, name: str, dims: list, bytes: float):
    flops, moved, _ = cost(name, dims)
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
def test_shapes_that_make_no_sense_are_unknown_and_no_error(
    cost: Cost, name: str, dims: list, concrete: list[str] | None
):
    assert math.isnan(cost(name, dims, concrete=concrete)[0])


def test_arguments_that_are_no_lists_are_unknown(cost: Cost):
    flops, moved, dtype = cost("aten::mm", {"8": 4}, types={"a": 1}, concrete={"b": 2})
    assert math.isnan(flops)
    assert math.isnan(moved)
    assert dtype == -1
