"""The timeline as one sees it: real Chromium, the real server, no network but loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from werkzeug.serving import make_server

from harness.errors import UsageError
from harness.report.words import IDLE
from harness.timeline import links
from harness.timeline.app import TimelineApp
from harness.trace import analyze, read
from tests.browser import Watched, chromium, opened, slow_down  # noqa: F401
from tests.launch import wait_until
from tests.trace.conftest import annotation, kernel, op, python, recorded, runtime

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame

READY_MS = 90_000
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"

Show = Callable[..., Any]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of every recorded trace, and of a few that were written for it."""
    folder = tmp_path_factory.mktemp("traces")
    events = [
        op("its twin on another thread", 1, 50, 1, tid=0),
        annotation(EVIL, 1, 50),
        runtime("cudaLaunchKernel", 10, 2, 1),
        kernel(EVIL, 20, 9, 1),
        python(EVIL, 0, 60),
    ]
    (folder / "evil.json").write_text(json.dumps({"traceEvents": events}))
    text = json.dumps({"traceEvents": [op("aten::add", 1, 5, 1), op("aten::mul", 7, 5, 2)]})
    (folder / "damaged.json").write_text(text.replace('"dur": 5', '"dur": N/A', 1))
    (folder / "broken.json").write_text("this is no trace")

    def resolve(arguments: Mapping[str, str]) -> Path:
        name = arguments.get("file", "")
        for path in (folder / name, recorded(name)):
            if "/" not in name and path.is_file():
                return path
        raise UsageError(f"the logdir holds no {name}")

    server = make_server("127.0.0.1", 0, TimelineApp(resolve), threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.port}/data/plugin/windows/timeline/view.html?"
    server.shutdown()


def loaded(watched: Watched, state: str = "done") -> Any:
    """The UI's own handle, as a function that runs a query on what it has imported."""
    watched.page.wait_for_selector(f"body[data-state={state}]", timeout=READY_MS)
    frame = watched.page.frames[1]

    def query(sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            frame.evaluate(
                """async (sql) => {
                    const result = await app.trace.engine.query(sql);
                    const [columns, rows] = [result.columns(), []];
                    for (const row = result.iter({}); row.valid(); row.next()) {
                        rows.push(Object.fromEntries(columns.map((name) => [name, row.get(name)])));
                    }
                    return JSON.stringify(rows, (_, value) => typeof value === 'bigint' ? Number(value) : value);
                }""",
                sql,
            )
        )
        return found

    return query


@pytest.mark.parametrize("name", ["lab5_cnn", "ddp_straggler_rank1.rank0"])
def test_perfetto_imports_every_slice_and_arrow(chromium: Browser, address: str, name: str) -> None:  # noqa: F811
    with opened(chromium, address + urlencode({"file": name})) as watched:
        query = loaded(watched)
        facts = watched.page.evaluate("async () => (await fetch('facts' + location.search)).json()")
        frame = watched.page.frames[1]
        drawn = "select count(*) as n from slice where category is not 'unknown'"
        assert query(drawn)[0]["n"] == facts["slices"]
        assert query("select count(*) as n from flow")[0]["n"] == facts["arrows"]
        assert query("select name from stats where severity != 'info' and value > 0") == []
        kernels = query("select count(*) as n from slice where category = 'kernel'")[0]["n"]
        assert kernels == analyze(read(recorded(name))).categories["kernel"]
        rows = frame.locator(".pf-track").all_inner_texts()
        assert [row for row in rows if "steps" in row]
        assert [row for row in rows if "main" in row]
        idle = watched.page.evaluate("async () => Object.keys((await import('./plugins.js')).IDLE)")
        plugins = frame.evaluate(
            "() => Object.fromEntries(app.plugins.getAllPlugins()"
            ".map((plugin) => [`plugin_${plugin.desc.id}`, plugin.active]))"
        )
        assert {name: plugins.get(name, "gone") for name in idle} == dict.fromkeys(idle, None), (
            "each is known, none runs"
        )
        assert recorded(name).name == watched.page.locator("h1").inner_text()
        watched.assert_well()


def visible(frame: Frame) -> tuple[float, float]:
    """The part of the trace's time that is in view, ns."""
    low, high = frame.evaluate(
        "() => { const {start, duration} = app.trace.timeline.visibleWindow;"
        "return [Number(start.integral), Number(start.integral) + duration]; }"
    )
    return low, high


def test_a_link_opens_at_the_gap_and_moves_to_a_step_without_loading_again(
    chromium: Browser,  # noqa: F811
    address: str,
) -> None:
    report = analyze(read(recorded("lab5_cnn")))
    gap, step, first = report.gaps[0], report.steps[2], read(recorded("lab5_cnn")).start
    start = first + gap.start_us * 1000
    with opened(chromium, f"{address}file=lab5_cnn#{urlencode(links.gap(gap))}") as watched:
        loaded(watched)
        frame = watched.page.frames[1]
        panel = frame.locator(".pf-details-shell")
        panel.wait_for()
        assert f"idle: {IDLE[gap.reason]}" in panel.inner_text()
        low, high = visible(frame)
        assert low <= start <= start + gap.duration_us * 1000 <= high
        assert high - low < 10 * gap.duration_us * 1000

        watched.page.evaluate("(hash) => { location.hash = hash; }", urlencode(links.step(step)))
        panel.get_by_text(f"step {step.number}").first.wait_for()
        begins = first + step.start_us * 1000
        wait_until(lambda: visible(frame)[1] >= begins + step.host_us * 1000, 10, "the step")
        assert low < visible(frame)[0] <= begins

        watched.page.evaluate("() => { location.hash = ''; }")
        wait_until(lambda: visible(frame)[0] <= first, 10, "the whole window")
        assert frame.evaluate("() => app.trace.selection.selection.kind") == "empty"

        watched.page.emulate_media(color_scheme="dark")
        frame.locator(".pf-theme-provider--dark").wait_for()
        assert len([url for url in watched.requests if "/trace?" in url]) == 1
        watched.assert_well()


def test_a_kernel_is_selected_below_a_deep_stack_and_lies_in_view_on_a_slow_machine_too(
    chromium: Browser,  # noqa: F811
    address: str,
) -> None:
    longest = analyze(read(recorded("eager_transformer_mem"))).kernels[0]
    with opened(chromium, address + urlencode({"file": "eager_transformer_mem"})) as watched:
        loaded(watched)
        slow_down(watched.page, 8)
        watched.page.evaluate("(hash) => { location.hash = hash; }", urlencode(links.kernel(longest)))
        frame = watched.page.frames[1]
        frame.locator(".pf-details-shell").wait_for()
        assert longest.name in frame.locator(".pf-details-shell").inner_text()
        row = frame.locator(".pf-track").filter(has_text="stream 7 compute").last
        panel = frame.locator(".pf-details-shell")

        def in_view() -> bool:
            shown, covering = row.bounding_box(), panel.bounding_box()
            return bool(shown and covering and shown["y"] >= 0 and shown["y"] + shown["height"] <= covering["y"] + 1)

        wait_until(in_view, 10, lambda: f"{row.bounding_box()} above {panel.bounding_box()}")
        watched.assert_well()


def test_names_are_text_whatever_they_hold(chromium: Browser, address: str) -> None:  # noqa: F811
    spot = {"ts": 1_000, "dur": 50_000, "pid": 1, "tid": 1}
    with opened(chromium, address + urlencode({"file": "evil.json", **spot})) as watched:
        watched.page.on("dialog", lambda dialog: watched.wrong.append(f"a dialog: {dialog.message}"))
        query = loaded(watched)
        frame = watched.page.frames[1]
        frame.locator(".pf-details-shell").wait_for()
        assert EVIL in frame.locator(".pf-details-shell").inner_text()
        assert {row["name"] for row in query("select name from slice where category = 'kernel'")} == {EVIL}
        assert frame.locator("img[src=x]").count() == watched.page.locator("img[src=x]").count() == 0
        watched.assert_well()


def test_what_was_lost_of_a_damaged_file_is_said_in_the_dark_too(chromium: Browser, address: str) -> None:  # noqa: F811
    with opened(chromium, address + urlencode({"file": "damaged.json", "theme": "dark"})) as watched:
        loaded(watched)
        assert watched.page.frames[1].locator(".pf-theme-provider--dark").count()
        notes = watched.page.locator("#notes")
        assert notes.locator("summary").inner_text() == "damaged file: 1 event lost"
        notes.locator("summary").click()
        assert "1 of 2 events could not be read" in notes.inner_text()
        watched.assert_well()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"file": "broken.json"}, "broken.json: is no trace but text"),
        ({"file": EVIL}, f"the logdir holds no {EVIL}"),
    ],
)
def test_what_cannot_be_shown_says_why(
    chromium: Browser,  # noqa: F811
    address: str,
    arguments: dict[str, str],
    words: str,
) -> None:
    with opened(chromium, address + urlencode(arguments)) as watched:
        watched.page.wait_for_selector("body[data-state=failed]", timeout=READY_MS)
        assert words in watched.page.get_by_role("alert").inner_text()
        assert not [wrong for wrong in watched.wrong if "404" not in wrong]
