"""``harness board``: a real TensorBoard on a real run, asked over HTTP."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import reading
from tests.launch import TINY, Launcher, environment, session, wait_until, window_every

pytestmark = pytest.mark.xdist_group("board")

READY_S = 60.0
LOADED_S = 90.0
"""TensorBoard looks for new files every 5 s, the profiler plugin every 3 s."""


class Board:
    """A ``harness board`` process."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._out = folder / "board.out"
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", "from harness.cli import main; main()", "board", *arguments),
                    *("--host", "127.0.0.1", "--port", str(self.port)),
                ],
                cwd=folder,
                env=environment(),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self._out.read_text()

    def ready(self) -> None:
        wait_until(
            lambda: f"http://127.0.0.1:{self.port}" in self.text or self.process.poll() is not None,
            READY_S,
            lambda: f"the address in:\n{self.text}",
        )
        assert self.process.poll() is None, self.text

    def get(self, path: str, body: dict[str, Any] | None = None, **query: str) -> Any:
        """What TensorBoard answers; a body is posted."""
        url = f"http://127.0.0.1:{self.port}/{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        request = urllib.request.Request(url, data=None if body is None else json.dumps(body).encode())
        if body is not None:
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = answer.read()
        if answer.headers["Content-Encoding"] == "gzip":
            content = gzip.decompress(content)
        return json.loads(content) if "json" in answer.headers["Content-Type"] else content

    def get_once(self, loaded: Callable[[Any], object], path: str, **query: Any) -> Any:
        """The answer, once it is as ``loaded`` says."""
        answers: list[Any] = []

        def asked() -> bool:
            try:
                answers.append(self.get(path, **query))
            except urllib.error.HTTPError:
                return False
            return bool(loaded(answers[-1]))

        wait_until(asked, LOADED_S, lambda: f"{path}; the last answer was {answers[-1:]}", every=0.25)
        return answers[-1]

    def end(self) -> None:
        for pid in session(self.process.pid):
            subprocess.run(["kill", "-KILL", str(pid)], check=False)
        self.process.wait()


@pytest.fixture(scope="module")
def board(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """TensorBoard, started before there was a logdir; the run came later."""
    folder = tmp_path_factory.mktemp("board")
    started = Board(folder, "logs")
    try:
        started.ready()
        overrides = [text for text in TINY if not text.startswith(("trainer.max_steps", "profiler"))]
        done = launcher.run(
            "train",
            *(*overrides, "trainer.max_steps=12", *window_every(1, 1, 2, 3), "logdir=logs", "name=board"),
            cwd=folder,
        )
        assert done.status == 0, done.text
        yield started
    finally:
        started.end()


@pytest.fixture(scope="module")
def run(board: Board) -> Path:
    return reading.only_run(board.folder / "logs")


@pytest.fixture(scope="module")
def name(run: Path) -> str:
    """The run as TensorBoard names it."""
    return "/".join(run.parts[-2:])


def test_the_curves_are_there(board: Board, name: str) -> None:
    # The last to come: a window is shown once it is published.
    tags = board.get_once(lambda answer: "window/stall_ms" in answer.get(name, {}), "data/plugin/scalars/tags")
    assert set(tags) == {name}, "one run in TensorBoard for each of ours"
    assert {
        "train/loss",
        "train/lr",
        "train/grad_norm",
        "eval/loss",
        "eval/accuracy",
        "perf/samples_per_second",
        "perf/step_time_ms",
        "perf/data_wait_ms",
        "window/stall_ms",
    } <= set(tags[name])
    points = board.get("data/plugin/scalars/scalars", tag="train/loss", run=name)
    assert [step for _, step, _ in points] == list(range(1, 13))


def test_configuration_and_environment_are_there_as_text(board: Board, name: str) -> None:
    tags = board.get_once(
        lambda answer: {"config", "environment"} <= {tag.split("/")[0] for tag in answer.get(name, [])},
        "data/plugin/text/tags",
    )
    found = {}
    for tag in tags[name]:
        entry, *_ = board.get("data/plugin/text/text", run=name, tag=tag)
        found[tag.split("/")[0]] = entry["text"]
    assert "max_steps: 12" in found["config"]
    assert "harness.models.MLP" in found["config"]
    assert "torch" in found["environment"]
    assert "<table>" in found["environment"]


def test_sample_images_are_there(board: Board, name: str) -> None:
    tags = board.get_once(lambda answer: answer.get(name), "data/plugin/images/tags")
    assert set(tags[name]) == {"data"}


def test_hyperparameters_stand_beside_the_final_metrics_of_the_same_run(board: Board, name: str, run: Path) -> None:
    experiment = board.get_once(
        lambda answer: answer.get("hparamInfos"), "data/plugin/hparams/experiment", body={"experimentName": ""}
    )
    hparams = {info["name"] for info in experiment["hparamInfos"]}
    assert {"optimizer.lr", "batch_size", "seed", "precision"} <= hparams
    assert {info["name"]["tag"] for info in experiment["metricInfos"]} >= {"train/loss", "eval/loss", "eval/accuracy"}
    request = {
        "experimentName": "",
        "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
        "colParams": [{"metric": info["name"], "includeInResult": True} for info in experiment["metricInfos"]]
        + [{"hparam": hparam, "includeInResult": True} for hparam in sorted(hparams)],
        "startIndex": 0,
        "sliceSize": 10,
    }
    groups = board.get_once(
        lambda answer: '"STATUS_SUCCESS"' in json.dumps(answer),
        "data/plugin/hparams/session_groups",
        body=request,
    )
    (group,) = groups["sessionGroups"]
    (one,) = group["sessions"]
    assert one["name"] == name
    assert one["status"] == "STATUS_SUCCESS"
    assert group["hparams"]["batch_size"] == 16
    shown = {value["name"]["tag"]: value["value"] for value in values(groups)}
    metrics = reading.manifest(run)["metrics"]
    for tag in ("train/loss", "eval/loss", "eval/accuracy"):
        assert shown[tag] == pytest.approx(metrics[tag], rel=1e-5)


def values(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [value for group in answer.get("sessionGroups", []) for value in group.get("metricValues", [])]


def test_custom_scalars_have_a_layout(board: Board, name: str) -> None:
    layout = board.get_once(lambda answer: answer.get("category"), "data/plugin/custom_scalars/layout")
    assert [category["title"] for category in layout["category"]] == ["Training", "Speed", "Memory", "Windows", "Ranks"]


def test_the_profiler_plugin_lists_the_run_with_its_windows_as_spans(board: Board, name: str, run: Path) -> None:
    plugin = "data/plugin/pytorch_profiler"
    board.get_once(lambda answer: answer["runs"] == [name], f"{plugin}/runs")
    (worker,) = board.get(f"{plugin}/workers", run=name, view="Overview")
    spans = board.get_once(lambda answer: len(answer) == 3, f"{plugin}/spans", run=name, worker=worker)
    assert spans == ["step 2", "step 6", "step 10"]
    for span, first in zip(spans, (2, 6, 10), strict=True):
        query = {"run": name, "worker": worker, "span": span}
        assert {"Overview", "Operator", "Trace"} <= set(board.get(f"{plugin}/views", **query))
        overview = board.get(f"{plugin}/overview", view="Overview", **query)
        assert [row[0] for row in overview["steps"]["rows"]] == [str(first), str(first + 1)]
        operators = board.get(f"{plugin}/operation/table", group_by="Operation", **query)
        assert "aten::addmm" in {row["name"] for row in operators["data"]}
        (window,) = run.glob(f"profile/window_{first:08d}")
        trace = board.get(f"{plugin}/trace", **query)
        trace = trace if isinstance(trace, dict) else json.loads(trace)
        assert trace == reading.trace(window), "the file as it is"


def test_what_became_of_the_profiler_plugin_is_said(board: Board) -> None:
    assert "profiler plugin: 0.4.3, repaired" in board.text


def test_the_page_itself_is_there(board: Board) -> None:
    assert b"<title>TensorBoard</title>" in board.get("")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_no_process_behind(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    board = Board(tmp_path, "logs")
    try:
        board.ready()
        assert "0 runs" in board.text
        leader = board.process.pid
        board.process.send_signal(number)
        assert board.process.wait(20) == 0, board.text
        assert "Traceback" not in board.text
        wait_until(lambda: session(leader) == [], 10, lambda: f"the end of {session(leader)}")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", board.port), timeout=5)
    finally:
        board.end()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["--port", "{taken}"], "{taken}"), (["--host", "203.0.113.7"], "203.0.113.7"), (["--port", "99999"], "99999")],
    ids=["port taken", "foreign address", "no port"],
)
def test_where_it_cannot_listen_is_told_with_status_2(
    arguments: list[str], word: str, harness: Launcher, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        given = [text.replace("{taken}", taken) for text in arguments]
        host = [] if "--host" in given else ["--host", "127.0.0.1"]
        done = harness.run("board", str(tmp_path), *host, *given, timeout=60)
    assert done.status == 2, done.text
    assert "Traceback" not in done.text, done.text
    assert word.replace("{taken}", taken) in done.err


def test_a_logdir_that_is_a_file_is_told_with_status_2(harness: Launcher, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = harness.start("board", str(tmp_path / "file"), "--host", "127.0.0.1")
    wait_until(lambda: not command.running or "http://" in command.text, 60)
    assert not command.running, f"it serves a file: {command.text}"
    done = command.wait(10)
    assert done.status == 2, done.text
    assert "file" in done.err
