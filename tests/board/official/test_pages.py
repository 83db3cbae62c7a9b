"""The plugin's views in a real browser, without a network, against the report's numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest

from harness.trace import WindowReport, analyze, read
from tests.board.official.conftest import add_window, trace
from tests.browser import (
    StartTensorBoard,
    Watched,
    chromium,  # noqa: F401
    opened,
    tensorboard,  # noqa: F401
)
from tests.launch import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.xdist_group("board")

PAGE = "data/plugin/pytorch_profiler/index.html"
WAIT_MS = 45_000
SCRIPT = "<img src=x onerror=\"document.title='taken'\">"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logs = tmp_path_factory.mktemp("logs")
    add_window(logs / "exp" / "ddp", 3, "ddp_straggler_rank1.rank0", "ddp_straggler_rank1.rank1")
    for step, name in ((4, "overhead_mlp"), (120, "compute_gemm_bf16"), (1000, "eager_transformer_mem")):
        add_window(logs / "exp" / "gpt", step, name)
    add_window(logs / "exp" / "loader", 7, "input_slow_loader")
    odd = logs / "odd" / "host_0.1.pt.trace.json"
    odd.parent.mkdir()
    odd.write_text(
        json.dumps(
            {
                "deviceProperties": [{"id": 0, "name": SCRIPT, "totalGlobalMem": 1}],
                "traceEvents": [
                    {"ph": "X", "cat": "cpu_op", "name": SCRIPT, "pid": 1, "tid": 1, "ts": 1.0, "dur": 9.0},
                    {"ph": "X", "cat": "kernel", "name": SCRIPT, "pid": 0, "tid": 7, "ts": 3.0, "dur": 5.0},
                ],
            }
        )
    )
    (logs / "odd_broken").mkdir()
    (logs / "odd_broken" / "host_0.1.pt.trace.json").write_text("no trace at all")
    return logs


@pytest.fixture(scope="module")
def address(tensorboard: StartTensorBoard, logdir: Path) -> str:  # noqa: F811
    """Plain TensorBoard, in whose environment this package is installed."""
    return tensorboard(logdir)


@pytest.fixture(scope="module")
def watched(chromium: Browser, address: str) -> Iterator[Watched]:  # noqa: F811
    with opened(chromium, f"{address}/{PAGE}") as found:
        found.page.set_default_timeout(WAIT_MS)
        yield found


@pytest.fixture
def page(watched: Watched) -> Iterator[Page]:
    """The page, open; a test that leaves an error in the console, or asks for an address outside, fails."""
    watched.wrong.clear()
    yield watched.page
    watched.assert_well()


def report(name: str) -> WindowReport:
    return analyze(read(trace(name)))


def choose(page: Page, place: int, value: str) -> None:
    """Choose in the ``place``-th list at the left, if it is not chosen yet."""
    box = page.locator("[role=button][aria-haspopup=listbox]").nth(place)
    box.wait_for()
    if box.inner_text() != value:
        box.click()
        page.get_by_role("option", name=value, exact=True).click()
        page.wait_for_function(
            "([place, value]) => document.querySelectorAll('[role=button][aria-haspopup=listbox]')[place]"
            ".textContent === value && !document.querySelector('[role=listbox]')",
            arg=[place, value],
        )


def see(page: Page, run: str, view: str, span: str | None = None) -> None:
    """Show a view of a run; its newest span, unless given."""
    choose(page, 0, run)
    if span is not None:
        choose(page, 3, span)
    page.wait_for_function(
        "view => document.querySelectorAll('[role=button][aria-haspopup=listbox]').length >= 3", arg=view
    )
    choose(page, 1, view)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def rows(page: Page, header: str) -> list[dict[str, str]]:
    """The rows of the table with a column of this name, as the page shows them; waits until there are some."""
    page.wait_for_function(
        """header => [...document.querySelectorAll("table")].some(table =>
            [...table.querySelectorAll("th")].some(cell => cell.textContent.trim() === header) &&
            [...table.querySelectorAll("tbody tr")].some(row => row.textContent.trim() && row.offsetHeight))""",
        arg=header,
    )
    found: list[dict[str, str]] = page.evaluate(
        """header => {
            const table = [...document.querySelectorAll("table")].find(table =>
                [...table.querySelectorAll("th")].some(cell => cell.textContent.trim() === header));
            const names = [...table.querySelectorAll("th")].map(cell => cell.textContent.trim());
            return [...table.querySelectorAll("tbody tr")].filter(row => row.offsetHeight && row.cells.length > 1)
                .map(row => Object.fromEntries([...row.cells].map((cell, i) => [names[i], cell.textContent.trim()])));
        }""",
        header,
    )
    return found


def test_overview_divides_the_average_step(page: Page) -> None:
    see(page, "exp/loader", "Overview")
    page.get_by_text("22,705").wait_for()
    parts = {row["Category"]: number(row["Time Duration (us)"]) for row in rows(page, "Category")}
    steps = report("input_slow_loader").steps
    average = parts.pop("Average Step Time")
    assert average == pytest.approx(sum(step.duration_us for step in steps) / len(steps), abs=1)
    assert sum(parts.values()) == pytest.approx(average, abs=len(parts))
    assert parts["DataLoader"] > 0.8 * average, "the loader takes 16 ms a batch"
    bars = page.evaluate("document.querySelectorAll('.js-plotly-plot')[1].data.map(trace => [trace.name, trace.y])")
    for place, step in enumerate(steps):
        assert sum(values[place] for _, values in bars) == pytest.approx(step.duration_us, abs=0.01)


def test_operator_view_has_the_reports_times(page: Page) -> None:
    see(page, "exp/gpt", "Operator", "step 1000")
    operators = {row.name: row for row in report("eager_transformer_mem").operators}
    found = rows(page, "Device Self Duration (us)")
    assert len(found) >= 10
    for row in found:
        expected = operators[row["Name"]]
        assert number(row["Calls"]) == expected.count
        assert number(row["Device Self Duration (us)"]) == pytest.approx(expected.self_device_time_us, abs=1)
        assert number(row["Device Total Duration (us)"]) == pytest.approx(expected.device_time_us, abs=1)
        assert number(row["Host Self Duration (us)"]) == pytest.approx(expected.self_cpu_time_us, abs=1)
        assert number(row["Host Total Duration (us)"]) == pytest.approx(expected.cpu_time_us, abs=1)
    linear = page.locator("tr").filter(has=page.get_by_text("aten::addmm", exact=True))
    linear.get_by_text("View CallStack").click()
    page.get_by_text("View call frames").first.click()
    page.get_by_text(re.compile(r"linear\.py\(\d+\): forward")).first.wait_for()


def test_kernel_view_has_the_reports_times_and_marks_tensor_cores(page: Page) -> None:
    see(page, "exp/gpt", "GPU Kernel", "step 120")
    page.get_by_text(re.compile("^nvjet_sm90")).first.wait_for()
    kernels = {row.name: row for row in report("compute_gemm_bf16").kernels}
    found = rows(page, "Total Duration (us)")
    assert found
    for row in found:
        assert number(row["Calls"]) == kernels[row["Name"]].count
        assert number(row["Total Duration (us)"]) == pytest.approx(kernels[row["Name"]].total_us, abs=1)
        assert row["Tensor Cores Used"] == "Yes"


def test_memory_view_has_the_reports_peak_and_follows_the_zoom(page: Page) -> None:
    see(page, "exp/gpt", "Memory", "step 1000")
    memory = report("eager_transformer_mem").memory
    assert memory is not None
    (pool,) = (pool for pool in memory.pools if pool.device_type == "device")
    page.get_by_text(f"Peak Memory Usage: {pool.peak_allocated_bytes / 2**20:.1f}MB").wait_for()
    whole = rows(page, "Allocation Count")
    with page.expect_response(re.compile(r"/memory\?.*start_ts=")):
        plot = page.locator(".js-plotly-plot .nsewdrag").first
        plot.hover(position={"x": 200, "y": 50})
        # It is still by now.
        box = plot.bounding_box()
        assert box is not None
        page.mouse.down()
        page.mouse.move(box["x"] + 400, box["y"] + 50, steps=5)
        page.mouse.up()
    calls = sum(number(row["Calls"]) for row in whole)
    part: dict[str, float] = {}

    def shown() -> bool:
        part.clear()
        part.update({row["Operator Name"]: number(row["Calls"]) for row in rows(page, "Allocation Count")})
        return sum(part.values()) < calls

    wait_until(shown, 10, "the table of the part that is zoomed to")
    for row in whole:
        assert part.get(row["Operator Name"], 0) <= number(row["Calls"])


def test_module_view_has_the_modules_time(page: Page) -> None:
    see(page, "exp/gpt", "Module", "step 1000")
    (row,) = rows(page, "Host Total Time")
    found = read(trace("eager_transformer_mem"))
    spans = [i for i, name in enumerate(found.name.tolist()) if found.names[name] == "nn.Module: TransformerEncoder_0"]
    assert row["Module Name"] == "TransformerEncoder_0"
    assert number(row["Occurences"]) == len(spans)
    assert number(row["Host Total Time"]) == pytest.approx(sum(found.dur[spans].tolist()) / 1000, abs=0.01)
    page.wait_for_selector("[data-spans]")


def test_trace_view_opens_this_windows_timeline(page: Page) -> None:
    """The page is another plugin's, and tested with it: here it is what is asked of it."""
    asked: list[str] = []

    def answer(route: Route) -> None:
        found = route.fetch(max_redirects=0)
        asked.append(urljoin(route.request.url, found.headers["location"]))
        route.fulfill(body="timeline")

    page.route("**/pytorch_profiler/timeline?*", answer)
    see(page, "exp/gpt", "Trace", "step 120")
    page.frame_locator("iframe[title=Timeline]").get_by_text("timeline").wait_for()
    address = urlsplit(asked[-1])
    assert address.path == "/data/plugin/windows/timeline/view.html"
    assert parse_qs(address.query) == {
        "run": ["exp/gpt"],
        "window": ["window_00000120"],
        "file": ["host_0.1700000120.pt.trace.json.gz"],
    }
    choose(page, 3, "step 4")
    page.locator("iframe[title=Timeline][src*='step+4']").wait_for()
    see(page, "exp/gpt", "Overview", "step 1000")


def test_distributed_view_tells_waiting_from_transfer(page: Page) -> None:
    see(page, "exp/ddp", "Distributed")
    (row,) = rows(page, "Total Size (bytes)")
    assert row["Name"] == "nccl:all_reduce"
    assert number(row["Calls"]) == 6
    assert number(row["Total Size (bytes)"]) == 3 * 4 * (1_059_850 + 5_248_000)
    page.locator(".js-plotly-plot").nth(1).wait_for()
    charts = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data.map(trace => [trace.name, trace.y]))"
    )
    divided, waited = (dict(chart) for chart in charts)
    for rank in (0, 1):
        steps = report(f"ddp_straggler_rank1.rank{rank}").steps
        whole = sum(values[rank] for values in divided.values())
        assert whole == pytest.approx(sum(step.duration_us for step in steps) / len(steps), abs=5)
    assert waited["Synchronizing Time"][0] > 14_000, "rank 0 waits for rank 1"
    assert waited["Synchronizing Time"][1] < 10


def test_diff_pairs_operators_by_name(page: Page) -> None:
    page.get_by_role("tab", name="Diff").click()
    for place, value in enumerate(("exp/gpt", "host_0", "step 4", "exp/gpt", "host_0", "step 1000")):
        choose(page, place, value)
    found = rows(page, "Baseline Calls")
    base, experiment = (
        {row.name: row for row in report(name).operators} for name in ("overhead_mlp", "eager_transformer_mem")
    )
    assert len(found) == 10
    for row in found:
        for calls, time, side in (
            ("Baseline Calls", "Baseline Host Duration (us)", base),
            ("Exp Calls", "Exp Host Duration (us)", experiment),
        ):
            expected = side.get(row["Operator"])
            assert number(row[calls]) == (expected.count if expected else 0)
            assert number(row[time]) == pytest.approx(expected.cpu_time_us if expected else 0, abs=1)
    assert any(row["Baseline Calls"] == "0" for row in found) or any(row["Exp Calls"] == "0" for row in found)
    page.get_by_role("tab", name="Normal").click()


def test_a_new_window_appears_and_what_is_chosen_stays(page: Page, logdir: Path) -> None:
    see(page, "exp/gpt", "Overview", "step 4")
    add_window(logdir / "exp" / "gpt", 2000, "sync_item")
    page.locator("[role=button][aria-haspopup=listbox]").nth(3).click()
    page.get_by_role("option", name="step 2000").wait_for()
    assert page.get_by_role("option").all_inner_texts() == ["step 4", "step 120", "step 1000", "step 2000"]
    page.keyboard.press("Escape")
    page.get_by_role("listbox").wait_for(state="detached")
    assert page.locator("[role=button][aria-haspopup=listbox]").nth(3).inner_text() == "step 4"
    choose(page, 3, "step 2000")
    steps = report("sync_item").steps
    page.get_by_text(f"{round(sum(step.duration_us for step in steps) / len(steps)):,}", exact=True).first.wait_for()


def test_names_that_are_markup_are_text(page: Page) -> None:
    see(page, "odd", "Operator")
    page.get_by_text(SCRIPT).first.wait_for()
    ring = page.locator(".js-plotly-plot .slice path.surface").first
    # Its middle is a hole.
    ring.hover(position={"x": ring.evaluate("one => one.getBoundingClientRect().width") / 2, "y": 8}, force=True)
    page.locator(".hoverlayer .hovertext").first.wait_for()
    see(page, "odd", "GPU Kernel")
    page.get_by_text(SCRIPT).first.wait_for()
    see(page, "odd", "Overview")
    page.get_by_text(SCRIPT).first.wait_for()
    assert page.title() == "PyTorch Profiler"
    assert page.locator("img[src=x]").count() == 0


def test_a_file_that_is_no_trace_is_said_in_the_page(page: Page) -> None:
    choose(page, 0, "odd_broken")
    page.get_by_text("host_0.1.pt.trace.json").last.wait_for()


def test_tensorboard_shows_it_in_its_tab_and_in_the_dark(chromium: Browser, address: str) -> None:  # noqa: F811
    with opened(chromium, f"{address}/#pytorch_profiler") as found:
        frame = found.page.frame_locator("iframe")
        frame.get_by_text("Step Time Breakdown").wait_for(timeout=WAIT_MS)
        turned = "getComputedStyle(document.documentElement).filter"
        assert frame.locator("body").evaluate(turned) == "none"
        found.page.evaluate("document.body.classList.add('dark-mode')")
        frame.locator(":root[data-theme=dark]").wait_for()
        assert frame.locator("body").evaluate(turned).startswith("invert")
        found.assert_well()
