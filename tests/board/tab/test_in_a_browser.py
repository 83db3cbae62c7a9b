"""The Windows tab in a real TensorBoard and a real browser, used as a person would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from harness.report.units import duration, share
from tests import browser
from tests.board.tab import layout
from tests.browser import Watched, opened, served
from tests.launch import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator, Page

pytestmark = pytest.mark.xdist_group("board")
chromium = browser.chromium

WAIT_MS = 30_000
SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"
PARTS = ("Overview", "Operators", "Kernels", "Memory", "Phases", "Devices and ranks")
LONG, SHORT, DDP, NEW = "gpt/long", "cnn/short", "ddp/two", "new/run"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "logs"
    layout.long_run(folder / LONG, 120)
    layout.manifest(folder / SHORT, started="2026-11-29T09:00:00.000+00:00", step=300, max_steps=300)
    for step, trace in ((100, "lab5_cnn_mem"), (200, "copy_bound"), (300, "compute_gemm_bf16")):
        layout.window(folder / SHORT, step, trace)
    layout.manifest(folder / DDP, started="2026-11-29T08:00:00.000+00:00", world_size=2)
    ranks = ["ddp_straggler_rank1.rank1"]
    layout.window(folder / DDP, 200, "ddp_straggler_rank1.rank0", ranks=ranks, told=False)
    layout.window(folder / DDP, 400, "ddp_straggler_rank1.rank0", ranks=ranks)
    layout.manifest(
        folder / NEW,
        started="2026-11-29T07:00:00.000+00:00",
        status="completed",
        step=40,
        max_steps=40,
        first_window=200,
    )
    hostile = folder / "hostile" / SCRIPT.replace("/", "_")
    layout.manifest(hostile, started="2026-11-29T06:00:00.000+00:00", error=SCRIPT)
    path = layout.window(hostile, 10, "lab5_cnn_mem") / "window.json"
    names = (
        "aten::conv2d",
        "aten::addmm",
        "aten::convolution_backward",
        "Optimizer.step#AdamW.step",
        "Memset (Device)",
    )
    text = path.read_text()
    for name in names:
        text = text.replace(f'"{name}"', json.dumps(f"{name} {SCRIPT}"))
    path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def address(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("tensorboard"), "--logdir", str(logdir)) as board:
        yield board.address


class Tab:
    """The tab in an open page.

    Args:
        framed: Within TensorBoard's own page, which takes its time to load; else the frame by itself.
    """

    def __init__(self, watched: Watched, *, framed: bool = True) -> None:
        self.watched, self.framed = watched, framed
        self.page = watched.page
        self.page.set_default_timeout(WAIT_MS)
        inner = 'iframe[src*="name=windows"]'
        self.frame: FrameLocator | Page = self.page.frame_locator(inner) if framed else self.page

    def heading(self, text: str) -> None:
        """Wait for this heading."""
        self.frame.get_by_role("heading", name=text).first.wait_for()

    def button(self, name: str) -> None:
        self.frame.get_by_role("button", name=name, exact=True).first.click()

    def part(self, name: str) -> None:
        self.frame.get_by_role("tab", name=name, exact=True).click()

    def drawn(self, charts: int) -> None:
        """Wait for so many charts."""
        self.frame.locator(".chart[data-drawn]").nth(charts - 1).wait_for()

    def column(self, table: str, place: int) -> list[str]:
        return (
            self.frame.get_by_role("table", name=table, exact=True)
            .locator(f"tbody tr td:nth-child({place})")
            .all_inner_texts()
        )


FRAME = "data/plugin_entry.html?name=windows"


@pytest.fixture(scope="module")
def alone(chromium: Browser, address: str) -> Iterator[Tab]:
    with opened(chromium, f"{address}/{FRAME}") as watched:
        yield Tab(watched, framed=False)


@pytest.fixture(scope="module")
def within(chromium: Browser, address: str) -> Iterator[Tab]:
    with opened(chromium, f"{address}/#windows") as watched:
        yield Tab(watched)


@pytest.fixture
def tab(alone: Tab, address: str) -> Iterator[Tab]:
    """The tab by itself, on a run without windows; the page is every test's."""
    yield fresh(alone, address)
    # A browser asks a page that stands by itself for an icon, which TensorBoard's own page names.
    alone.watched.wrong[:] = [line for line in alone.watched.wrong if "Failed to load resource" not in line]
    alone.watched.assert_well()


@pytest.fixture
def framed(within: Tab, address: str) -> Iterator[Tab]:
    """The tab in TensorBoard, on a run without windows; the page is every test's."""
    yield fresh(within, address)
    within.watched.assert_well()


def fresh(tab: Tab, address: str) -> Tab:
    """What a test before has shown is gone."""
    show(tab, address, run=NEW)
    tab.heading("No window yet")
    tab.watched.wrong.clear()
    tab.watched.requests.clear()
    return tab


def show(tab: Tab, address: str, **state: str) -> None:
    """Open a shared address in a page that shows another one."""
    keys = "".join(f"&p.windows.{key}={quote(value, '')}" for key, value in state.items())
    tab.page.goto(f"{address}/{'' if tab.framed else FRAME}#windows{keys}")


def test_from_the_runs_to_a_window_and_back(framed: Tab) -> None:
    framed.frame.get_by_role("option").filter(has_text=LONG).click()
    framed.heading(LONG)
    framed.drawn(4)
    framed.heading("Windows, 120")
    steps = framed.column("windows", 2)
    assert [int(step.replace(",", "")) for step in steps] == list(range(24000, 4000, -200))
    framed.button("show older windows (20 left)")
    framed.frame.get_by_role("link", name="200", exact=True).wait_for()
    assert len(framed.column("windows", 2)) == 120
    report = layout.report("eager_transformer_mem")
    framed.frame.get_by_role("link", name="24,000", exact=True).click()
    framed.heading("step 24,000")
    framed.heading("What bounds the step")
    assert framed.frame.locator(".finding .meaning").inner_text().startswith("The device waits for the host")
    assert share(report.device[0].busy_fraction) in framed.frame.locator(".figures").inner_text()
    framed.button("◀")
    framed.heading("step 23,800")
    framed.page.go_back()
    framed.heading("step 24,000")
    framed.frame.locator("a.back").click()
    framed.heading("Over the job's life")


def test_a_click_on_a_curve_opens_its_window_and_changes_of_the_verdict_are_marked(tab: Tab, address: str) -> None:
    show(tab, address, run=LONG)
    tab.drawn(4)
    step = tab.frame.locator(".chart").first
    assert step.locator(".shapelayer path").count() == 2, "a mark where the loop begins to wait, another where it ends"
    colours = tab.frame.locator(".ribbon button").evaluate_all(
        "all => [...new Set(all.map(one => one.style.background))]"
    )
    assert len(colours) == 2
    tab.frame.locator(".changes summary").click()
    assert "the loop waits for input" in tab.frame.locator(".changes ol").inner_text()
    step.hover()
    step.locator(".hoverlayer .legend").wait_for()
    step.click()
    tab.heading("step ")
    assert tab.frame.locator("header .verdict").inner_text() == "input-bound"


def test_operators_are_sorted_searched_and_grouped_by_shape(tab: Tab, address: str) -> None:
    report = layout.report("lab5_cnn_mem")
    show(tab, address, run=SHORT, window="window_00000100", part="operators")
    cpu = [row for row in report.operators if row.device_type == "cpu"]
    by_device = sorted(cpu, key=lambda row: -row.self_device_time_us)
    tab.frame.get_by_role("table", name="operators").wait_for()
    assert tab.column("operators", 3)[:5] == [duration(row.self_device_time_us) for row in by_device[:5]]
    tab.frame.get_by_role("button", name="calls").click()
    counts = [int(text.replace(",", "")) for text in tab.column("operators", 2)]
    assert counts == sorted((row.count for row in cpu), reverse=True)[: len(counts)]
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("conv backward")
    names = tab.column("operators", 1)
    assert names
    assert all("conv" in name.lower() and "backward" in name.lower() for name in names)
    tab.frame.get_by_label("group by input shapes").check()
    assert any("×" in text for text in tab.column("operators", 2))
    tab.page.wait_for_url("**p.windows.shapes=yes**")
    tab.page.reload()
    tab.frame.get_by_role("table", name="operators").wait_for()
    assert tab.frame.get_by_label("group by input shapes").is_checked()
    assert tab.frame.get_by_label("find operators").input_value() == "conv backward"


def test_kernels_gaps_and_steps_lead_to_their_place_in_the_timeline(tab: Tab, address: str) -> None:
    report = layout.report("lab5_cnn_mem")
    show(tab, address, run=SHORT, window="window_00000100", part="kernels")
    tab.frame.get_by_role("table", name="kernels").get_by_role("button", name="timeline").first.click()
    kernel = max(report.kernels, key=lambda one: one.total_us)
    query = asked_of_the_timeline(tab, "kernel")
    assert query["kernel"] == kernel.name
    assert (query["run"], query["window"]) == (SHORT, "window_00000100")
    tab.part("Overview")
    tab.frame.get_by_role("table", name="gaps").get_by_role("button", name="timeline").first.click()
    tab.frame.locator(".where", has_text="a gap of").wait_for()
    query = asked_of_the_timeline(tab, "start_us")
    assert float(query["start_us"]) == report.gaps[0].start_us
    assert float(query["duration_us"]) == report.gaps[0].duration_us
    step = str(report.steps[0].number)
    tab.button(f"step {step}")
    tab.frame.locator(".where", has_text=f"step {step}").wait_for()
    tab.page.wait_for_url(f"**p.windows.step={step}**")


def asked_of_the_timeline(tab: Tab, name: str) -> dict[str, str]:
    """What the frame's address says, once `name` is in it."""
    where = "document.querySelector('iframe.timeline').contentWindow.location"
    said = f"[...new URLSearchParams({where}.search), ...new URLSearchParams({where}.hash.slice(1))]"
    found: dict[str, str] = {}

    def there() -> bool:
        found.clear()
        found.update(tab.frame.locator("body").evaluate(f"() => Object.fromEntries({said})"))
        return name in found

    wait_until(there, 30, lambda: f"{name} in {found}", every=0.1)
    return found


def test_memory_phases_devices_and_ranks(tab: Tab, address: str) -> None:
    show(tab, address, run=SHORT, window="window_00000100", part="memory")
    tab.drawn(1)
    assert "Peak on GPU 0" in tab.frame.locator("main").inner_text()
    assert tab.column("memory", 3)[0].endswith("iB")
    tab.part("Phases")
    tab.heading("Phases and named spans")
    tab.page.keyboard.press("6")
    tab.heading("Devices side by side")
    show(tab, address, run=DDP, window="newest", part="devices")
    tab.frame.get_by_text("Rank 1 on host is late").wait_for()
    side_by_side = tab.frame.locator(".card").filter(has=tab.frame.get_by_role("heading", name="Ranks", exact=True))
    assert side_by_side.locator("tbody tr td:first-child").all_inner_texts() == ["0", "▸ 1"]
    assert not [url for url in tab.watched.requests if "/rank?" in url], "window.json has it all"
    tab.page.keyboard.press("[")
    ranks = tab.frame.get_by_role("table", name="ranks")
    ranks.get_by_text("communication-bound").wait_for()
    asked = [url for url in tab.watched.requests if "/rank?" in url]
    assert len(asked) == 1, "the trace that the findings are of"
    ranks.get_by_role("button", name="analyze").click()
    ranks.get_by_text("overhead-bound").wait_for()
    assert tab.column("ranks", 1) == ["0", "1"]
    assert tab.column("ranks", 2) == ["communication-bound", "overhead-bound"]
    late = layout.report("ddp_straggler_rank1.rank1").device[0]
    assert tab.column("ranks", 9)[1].startswith(duration(late.idle_us))
    tab.part("Memory")
    tab.heading("No memory in this window")


def test_two_windows_side_by_side(tab: Tab) -> None:
    tab.frame.get_by_role("option").filter(has_text=SHORT).click()
    tab.heading("Windows, 3")
    tab.frame.get_by_label("compare step 300").check()
    tab.frame.get_by_label("compare step 200").check()
    tab.button("compare step 200 with step 300")
    tab.heading("What grew")
    assert "copy-bound" in tab.frame.get_by_role("table", name="the two sides").inner_text()
    tab.part("Kernels")
    shrank = tab.column("What shrank", 1)
    assert shrank[0].startswith("Memcpy")
    assert all(text.startswith("−") for text in tab.column("What shrank", 4))
    assert all(text.startswith("+") for text in tab.column("What grew", 4))
    tab.page.keyboard.press("x")
    tab.frame.get_by_role("table", name="What grew").get_by_text(shrank[0]).wait_for()
    assert tab.column("What grew", 1)[0] == shrank[0]
    tab.frame.get_by_label("before: run").select_option(LONG)
    tab.frame.get_by_role("table", name="the two sides").get_by_text(LONG).wait_for()
    tab.page.wait_for_url("**p.windows.before_run=gpt%2Flong**")


def test_the_keyboard_alone_will_do(tab: Tab, address: str) -> None:
    show(tab, address, run=SHORT)
    tab.frame.get_by_role("link", name="100", exact=True).wait_for()
    tab.frame.locator("main").focus()
    for _ in range(2):
        tab.page.keyboard.press("j")
    tab.page.keyboard.press("Enter")
    tab.heading("step 200")
    tab.page.keyboard.press("[")
    tab.heading("step 100")
    tab.page.keyboard.press("2")
    tab.frame.get_by_role("table", name="operators").wait_for()
    tab.page.keyboard.press("]")
    tab.heading("step 200")
    assert tab.frame.get_by_role("tab", selected=True).inner_text() == "Operators"
    tab.page.keyboard.press("?")
    tab.frame.get_by_role("dialog").wait_for()
    tab.page.keyboard.press("Escape")
    tab.frame.get_by_role("dialog").wait_for(state="detached")
    tab.page.keyboard.press("c")
    tab.heading("What shrank")
    tab.page.keyboard.press("Escape")
    tab.heading("step 200")
    tab.page.keyboard.press("Escape")
    tab.heading("Over the job's life")


def test_the_place_is_kept_while_another_tab_of_tensorboard_is_looked_at(framed: Tab, address: str) -> None:
    show(framed, address, run=SHORT, window="window_00000200", part="kernels")
    framed.frame.get_by_role("table", name="kernels").wait_for()
    framed.page.get_by_role("tab", name="PYTORCH_PROFILER").click()
    framed.page.wait_for_url("**/#pytorch_profiler*")
    framed.page.get_by_role("tab", name="WINDOWS").click()
    framed.page.wait_for_url("**/#windows*window_00000200*kernels*")
    framed.frame.get_by_role("table", name="kernels").wait_for()


def test_the_link_that_is_copied_shows_the_same_elsewhere(framed: Tab, chromium: Browser, address: str) -> None:
    framed.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    show(framed, address, run=SHORT, window="window_00000100", part="kernels")
    framed.frame.get_by_role("table", name="kernels").wait_for()
    framed.button("copy link")
    framed.frame.get_by_role("button", name="copied").wait_for()
    copied = framed.page.evaluate("navigator.clipboard.readText()")
    with opened(chromium, copied) as other:
        elsewhere = Tab(other)
        elsewhere.heading("step 100")
        elsewhere.frame.get_by_role("table", name="kernels").wait_for()
        other.assert_well()


def test_the_trace_is_downloaded(tab: Tab, address: str, logdir: Path) -> None:
    show(tab, address, run=SHORT, window="window_00000100")
    with tab.page.expect_download() as started:
        tab.frame.get_by_role("link", name=re.compile("^trace, ")).click()
    (trace,) = (logdir / SHORT / "profile" / "window_00000100").glob("*.gz")
    assert Path(started.value.path()).read_bytes() == trace.read_bytes()
    assert started.value.suggested_filename == trace.name


def test_a_window_that_is_published_while_the_page_is_open_appears(framed: Tab, address: str, logdir: Path) -> None:
    run = logdir / "live" / "run"
    layout.manifest(run, started="2026-11-29T05:00:00.000+00:00", step=50, first_window=100, status="completed")
    show(framed, address, run="live/run")
    framed.heading("No window yet")
    assert "The first comes at step 100" in framed.frame.locator("main").inner_text()
    layout.window(run, 100, "matmul_64")
    layout.window(run, 200, "matmul_4096")
    framed.frame.get_by_role("link", name="200", exact=True).wait_for()
    framed.frame.get_by_role("option").filter(has_text="live/run").get_by_text("compute-bound").wait_for()
    framed.frame.get_by_role("link", name="200", exact=True).click()
    framed.heading("step 200")
    layout.window(run, 300, "matmul_4096")
    framed.button("newest")
    framed.heading("step 300")


def test_names_with_scripts_in_them_are_shown_and_run_nothing(tab: Tab, address: str) -> None:
    run = f"hostile/{SCRIPT.replace('/', '_')}"
    dialogs: list[str] = []
    tab.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    show(tab, address, run=run)
    tab.drawn(4)
    tab.heading(run)
    tab.frame.get_by_role("link", name="10", exact=True).click()
    for part in PARTS:
        tab.part(part)
        tab.frame.locator(".part .card").first.wait_for()
    tab.part("Operators")
    tab.frame.get_by_text(f"aten::conv2d {SCRIPT}", exact=True).wait_for()
    show(tab, address, run=run, window="newest", before_run=SHORT, before_window="newest")
    tab.heading("What grew")
    assert tab.frame.locator("img, main script").count() == 0
    assert dialogs == []


def test_an_address_of_nothing_says_so(tab: Tab, address: str) -> None:
    show(tab, address, run="no/such/run")
    tab.heading("This run is not here")
    show(tab, address, run=SHORT, window="window_00000999")
    tab.heading("This window cannot be shown")
    show(tab, address, run=SHORT, window="../../etc")
    tab.heading("This window cannot be shown")
    tab.watched.wrong[:] = [line for line in tab.watched.wrong if "404" not in line]


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768)], ids=str)
def test_it_fits_a_laptop_and_follows_the_theme(size: tuple[int, int], framed: Tab, address: str) -> None:
    wide = "document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth"
    body = framed.frame.locator("body")
    framed.page.set_viewport_size({"width": size[0], "height": size[1]})
    try:
        show(framed, address, run=LONG)
        framed.drawn(4)
        wait_until(lambda: body.evaluate(f"() => {wide}"), 10, "a page that is not wider than its frame")
        light = body.evaluate("one => getComputedStyle(one).backgroundColor")
        framed.page.evaluate("document.body.classList.add('dark-mode')")
        wait_until(lambda: body.evaluate("one => getComputedStyle(one).backgroundColor") != light, 10, "the dark")
        framed.frame.get_by_role("link", name="24,000", exact=True).click()
        for part in PARTS:
            framed.part(part)
            framed.frame.locator(".part .card").first.wait_for()
            wait_until(lambda: body.evaluate(f"() => {wide}"), 10, f"{part} in the width of its frame")
    finally:
        framed.page.evaluate("document.body.classList.remove('dark-mode')")
        framed.page.set_viewport_size({"width": browser.LAPTOP[0], "height": browser.LAPTOP[1]})


def test_nothing_jumps_while_a_run_is_read(chromium: Browser, address: str) -> None:
    with opened(chromium, "about:blank") as watched:
        watched.page.add_init_script(
            "window.shifts = []; new PerformanceObserver(list => list.getEntries().forEach(entry =>"
            " window.shifts.push(entry.value))).observe({type: 'layout-shift', buffered: true});"
        )
        tab = Tab(watched, framed=False)
        show(tab, address, run=LONG)
        tab.drawn(4)
        shifts = tab.frame.locator("body").evaluate("() => window.shifts")
        assert sum(shifts) < 0.05, shifts


def test_the_pages_own_policy_lets_nothing_out(tab: Tab, address: str) -> None:
    show(tab, address, run=SHORT)
    tab.heading(SHORT)
    blocked = tab.frame.locator("body").evaluate(
        "async () => { try { await fetch('https://example.com/'); return 'sent' } catch { return 'blocked' } }"
    )
    assert blocked == "blocked"
    told = tab.watched.wrong.copy()
    assert any("Content Security Policy" in line for line in told), told
    tab.watched.wrong.clear()
