"""The page that defines the numbers, and the figure of its worked example."""

import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from benchmarks.matmul_figure import AXIS, TITLE, markdown, matmul_point
from harness.errors import UsageError
from harness.report.figure.axes import svg
from harness.trace import thresholds
from harness.trace.schema import VerdictLabel
from tests.trace.conftest import recorded

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")


def test_every_threshold_is_on_the_page_with_its_value() -> None:
    named = {name: value for name, value in vars(thresholds).items() if isinstance(value, thresholds.Threshold)}
    assert named
    for name, threshold in named.items():
        assert f"| `{name}` | {threshold.value:g} | " in PAGE


@pytest.mark.parametrize("label", VerdictLabel.__args__)  # type: ignore[attr-defined]
def test_every_verdict_is_on_the_page(label: str) -> None:
    assert f"`{label}`" in PAGE


def test_sweep_shows_where_the_device_takes_over() -> None:
    step_ms = {64: 0.0763, 512: 0.0831, 4096: 2.7528}
    points = [matmul_point(recorded(f"matmul_{size}"), step_ms) for size in (64, 512, 4096)]
    assert [p.size for p in points] == [64, 512, 4096]
    assert [p.host_us > p.device_us for p in points] == [True, True, False]
    assert [round(p.report.device[0].busy_fraction, 2) for p in points] == [0.06, 0.18, 0.99]
    rows = markdown(points).splitlines()[2:]
    assert [row.split("|")[-2].strip() for row in rows] == ["overhead-bound", "overhead-bound", "compute-bound"]


def test_picture_of_the_sweep_has_a_mark_for_each_size_and_quantity() -> None:
    drawing = xml.fromstring(
        svg([matmul_point(recorded(f"matmul_{size}"), {}) for size in (64, 512, 4096)], TITLE, AXIS)
    )
    marks = [element for element in drawing.iter() if element.tag.endswith("circle")]
    assert len(marks) == 9
    width, height = map(float, drawing.attrib["viewBox"].split()[2:])
    for mark in marks:
        assert 0 < float(mark.attrib["cx"]) < width
        assert 0 < float(mark.attrib["cy"]) < height
    words = {element.text for element in drawing.iter() if element.tag.endswith("text")}
    assert {"64", "512", "4096", "overhead-bound", "compute-bound", "1 ms"} <= words


def test_a_trace_without_a_product_has_no_place_in_the_sweep() -> None:
    with pytest.raises(UsageError, match="no shapes of a matrix product"):
        matmul_point(recorded("cuda_graph"), {})
