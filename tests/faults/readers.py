"""Every reader of a file that the harness did not write a moment ago, a row each: a good file, how it is read, and
what it is refused with.

The functions run in a process of their own, see ``fuzz.py``; what they import they import there.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from tests.board.tab import layout
from tests.faults import mutations
from tests.faults.mutations import Draw
from tests.launch import ROOT

SMALL = ROOT / "tests" / "traces" / "matmul_64.pt.trace.json.gz"
RUN = "logs/mine/run"
WINDOW = f"{RUN}/profile/window_00000010"
STEP = f"{RUN}/checkpoints/step_00000002"


@dataclass(frozen=True)
class Reader:
    """One row.

    Args:
        name: Of what is read.
        make: Writes good files into a folder.
        files: Those of them, as patterns, of which one is damaged.
        damage: Makes another file of a good one's bytes.
        read: Reads what is in the folder.
        refuses: What it may raise, with a message that names the file; for nothing else.
        can_be_misplaced: Something else than a file may be in its place.
    """

    name: str
    make: Callable[[Path], object]
    files: tuple[str, ...]
    damage: Callable[[bytes, Draw], bytes]
    read: Callable[[Path], object]
    refuses: Callable[[], tuple[type[Exception], ...]] = lambda: (UsageError,)
    can_be_misplaced: bool = True


def copied_trace(folder: Path, *, packed: bool) -> None:
    import gzip

    data = SMALL.read_bytes()
    name = f"host_0.1.pt.trace.json{'.gz' if packed else ''}"
    (folder / name).write_bytes(data if packed else gzip.decompress(data))
    (folder / "name").write_text(name)


def the_trace(folder: Path) -> Path:
    return folder / (folder / "name").read_text()


def read_trace(folder: Path) -> None:
    from harness.trace import analyze, read
    from tests.trace.conftest import assert_identities

    assert_identities(analyze(read(the_trace(folder), max_json_bytes=64 * 2**20)))


def read_timeline(folder: Path) -> None:
    from harness.timeline.prepare import prepare

    (folder / "timeline").mkdir()
    prepare(the_trace(folder), folder / "timeline", max_json_bytes=64 * 2**20)


def read_in_plugin(folder: Path) -> None:
    """By the process that parses for torch's own plugin, whose answer is pickled."""
    from harness.board.official.parser import Request, parse

    answer = parse(Request(str(the_trace(folder)), "host_0", "1"))
    pickle.dumps(answer)
    if answer.error is not None:
        raise UsageError(answer.error)


def a_window(folder: Path) -> None:
    layout.manifest(folder / RUN)
    layout.window(folder / RUN, 10, "matmul_64", keep=False)
    layout.window(folder / RUN, 20, "matmul_64")


def read_findings(folder: Path) -> None:
    """As ``harness report`` and ``harness runs`` do, and ``harness compare`` with another one's."""
    from harness.commands.compare import compare
    from harness.commands.report import report
    from harness.logdir.rows import collect

    def shown(call: Callable[[], object]) -> None:
        """Its output goes nowhere."""
        with redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            call()

    list(collect(folder / "logs"))
    shown(partial(report, folder / RUN, window=20, format="markdown"))
    shown(partial(report, folder / WINDOW, format="json"))
    shown(partial(report, folder / WINDOW, format="markdown"))
    shown(partial(compare, folder / WINDOW, folder / f"{RUN}/profile/window_00000020", format="markdown"))


def read_tab(folder: Path) -> None:
    """As the Windows tab does: an answer in JSON, whatever the files are."""
    tab = _tab(folder)
    for route, query in (
        ("runs", {}),
        ("list", {"run": "mine/run"}),
        ("life", {"run": "mine/run"}),
        ("window", {"run": "mine/run", "window": "window_00000010"}),
        ("window", {"run": "mine/run", "window": "window_00000020"}),
        (
            "compare",
            {"run": "mine/run", "window": "newest", "before_run": "mine/run", "before_window": "window_00000010"},
        ),
    ):
        answer = tab.ask(route, **query)
        assert answer.status_code in (200, 404, 422), f"{route}: {answer.status}: {answer.text[:500]}"
        json.loads(answer.text, parse_constant=_no_constant)


def _no_constant(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


def _tab(folder: Path) -> Any:
    from tests.board.tab.conftest import Tab

    return Tab(str(folder / "logs"))


def read_manifest(folder: Path) -> None:
    """As ``harness runs`` does, which shows what it cannot read, and whoever asks for this one run."""
    from harness import console
    from harness.logdir.manifest import read_manifest as read_one
    from harness.logdir.rows import collect
    from harness.report.sections.runs import show

    rows = list(collect(folder / "logs"))
    with console.out.capture():
        show(rows, console.out)
    read_one(folder / RUN)


def a_checkpoint(folder: Path) -> None:
    from harness.train.checkpoint import Checkpoints

    trainer = _trainer(folder)
    trainer.state.step = 2
    Checkpoints((folder / STEP).parent).save(trainer.keeper.snapshot(), step=2)


def _trainer(folder: Path) -> Any:
    from tests.train.test_trainer import Job

    return Job(folder).trainer


def read_checkpoint(folder: Path) -> None:
    """As a resumption does: the newest that is whole, into the trainer."""
    from harness.train.checkpoint import Checkpoints

    saved = Checkpoints((folder / STEP).parent).load_newest()
    if saved is not None:
        _trainer(folder).restore(saved, source=folder / STEP)


def other_values(data: bytes, draw: Draw) -> bytes:
    """A checkpoint as torch writes it, with other values in it."""
    import torch

    state = torch.load(io.BytesIO(data), weights_only=True)
    odd = [*mutations.ODD, torch.zeros(3), torch.tensor(float("nan")), torch.zeros(2, 2, dtype=torch.int8)]
    kept = state.get("format")
    for _ in range(draw.choice((1, 1, 2))):
        state = mutations.changed_value(state, draw, odd)
    if isinstance(state, dict) and draw.random() < 0.9:
        state["format"] = kept
    into = io.BytesIO()
    torch.save(state, into)
    return into.getvalue()


@cache
def _sharded() -> Any:
    """A small model in shards of one rank, and its optimizer."""
    import torch

    from harness.distributed.strategy import Sharded
    from harness.distributed.world import alone

    alone()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    strategy = Sharded(model, list(model), device=torch.device("cpu"))
    optimizer = torch.optim.AdamW(strategy.model.parameters())
    strategy.model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return strategy, optimizer


def a_sharded_checkpoint(folder: Path) -> None:
    from harness.distributed.world import World
    from harness.train.checkpoint import Checkpoints

    strategy, optimizer = _sharded()
    checkpoints = Checkpoints((folder / STEP).parent)
    state = {"state": {"step": 2}}
    checkpoints.save_sharded(state, lambda there: strategy.save(there, optimizer), step=2, world=World())


def read_sharded_checkpoint(folder: Path) -> None:
    """As a resumption does, which says of an error of torch's that the checkpoint is another model's."""
    from harness.train.checkpoint import SHARDED, load

    strategy, optimizer = _sharded()
    found = load(folder / STEP)[SHARDED]
    try:
        strategy.load(found, optimizer)
    except (RuntimeError, ValueError, KeyError) as error:
        raise UsageError(f"{folder / STEP}: {error}") from error


def a_snapshot(folder: Path) -> None:
    frames = [{"filename": "train.py", "line": 40, "name": "forward"}]
    block = {"size": 512, "state": "active_allocated", "frames": frames}
    free = {"size": 512, "state": "inactive"}
    segment = {"total_size": 2048, "blocks": [block, free]}
    (folder / "oom.pickle").write_bytes(pickle.dumps({"segments": [segment, segment], "device_traces": [[]]}))


def read_snapshot(folder: Path) -> None:
    """As ``harness report`` shows it."""
    from harness.report.sections.snapshot import snapshot_section
    from harness.trace.snapshot import read_snapshot as read_one

    snapshot_section(read_one(folder / "oom.pickle"), "memory")


def snapshot_errors() -> tuple[type[Exception], ...]:
    from harness.trace.snapshot import SnapshotError

    return (SnapshotError,)


def other_snapshot(data: bytes, draw: Draw) -> bytes:
    if draw.random() < 0.5:
        return mutations.of_bytes(data, draw)
    return pickle.dumps(mutations.changed_value(pickle.loads(data), draw, list(mutations.ODD)))


def a_request(folder: Path) -> None:
    import msgspec

    from harness.logdir import layout as layout_of
    from harness.logdir import request

    run = folder / RUN
    run.mkdir(parents=True)
    for name, what in (
        (layout_of.REQUEST, request.Request(id="a", steps=3)),
        (layout_of.ANSWER, request.Answer(id="a", state="planned", first_step=7, steps=3)),
        (layout_of.LISTENER, {"host": "here", "pid": 1}),
    ):
        (run / name).write_bytes(msgspec.json.encode(what))


def read_request(folder: Path) -> None:
    """Both sides, which take what they cannot understand for nothing."""
    from harness.logdir import request

    run = folder / RUN
    heard = request.read_request(run)
    request.read_answer(run, heard or request.Request(id="a"))
    request.listener(run)


def overrides(folder: Path) -> None:
    # As version 0.1.0 kept them, without checksums: any other change of the file is refused unread.
    layout.manifest(folder / RUN, overrides=["model=mlp", "trainer.max_steps=7", "name=a b"])
    (folder / RUN / ".hydra").mkdir()
    (folder / RUN / ".hydra" / "overrides.yaml").write_text("- model=mlp\n- trainer.max_steps=7\n- 'name=a b'\n")


def read_overrides(folder: Path) -> None:
    from harness.train.resume import complete

    found = complete([f"resume={folder / RUN}"])
    assert all(isinstance(text, str) for text in found)


def a_waiting_window(folder: Path) -> None:
    import gzip

    import msgspec

    from harness.publish import Cost, Job, Staging

    (folder / "logs").mkdir()
    staging = Staging(folder / "logs", "mine/run")
    staging.make()
    raw = staging.raw("window_00000010")
    raw.mkdir()
    data = gzip.decompress(SMALL.read_bytes())
    (raw / "host_0.1.pt.trace.json").write_bytes(data)
    cost = Cost(warmup_extra_us=1.0, active_extra_us=1.0)
    job = Job(
        first_step=10,
        steps=3,
        partial=False,
        unprofiled_step_us=9.0,
        profiled_steps_us=[1.0],
        cost=cost,
        raw_bytes=len(data),
    )
    (staging.folder / "window_00000010.job").write_bytes(msgspec.json.encode(job))


def publish_waiting(folder: Path) -> None:
    """As ``harness report`` does for a dead job; and as a job does that finds it when it starts."""
    from harness.publish import Publisher, Staging
    from harness.publish.recover import recover

    staging = Staging(folder / "logs", "mine/run")
    staging.make()
    Publisher(staging)
    list(recover(folder / "logs"))
    for window in (folder / "logs").glob("*/*/profile/*"):
        assert list(window.iterdir()), "an empty window"


def a_sweep(folder: Path) -> None:
    from harness.train import sweep

    sweep.save(folder / "logs" / "mine", sweep.Sweep(id="first", arguments=["-m", "seed=1,2", "name=mine"]))


def read_sweep(folder: Path) -> None:
    from harness.train import sweep

    sweep.resumed(["-m", "resume=first", f"logdir={folder / 'logs'}"])


def addresses(folder: Path) -> None:
    a_window(folder)
    (folder / "query.json").write_text(
        json.dumps({"run": "mine/run", "window": "window_00000010", "file": "", "before": "7"})
    )


def ask_tab(folder: Path) -> None:
    """Every route of the Windows tab with parameters of which some are odd."""
    tab, query = _tab(folder), _query(folder)
    for route in ("runs", "list", "life", "window", "compare", "memory", "rank", "trace"):
        answer = tab.ask(route, **query)
        assert answer.status_code in (200, 304, 400, 404, 422), f"{route}: {answer.status}: {answer.text[:500]}"
    for route in ("view.html", "facts", "trace", "perfetto/index.html"):
        answer = tab.ask(f"timeline/{route}", **query)
        assert answer.status_code in (200, 304, 400, 404, 422), (
            f"timeline/{route}: {answer.status}: {answer.text[:500]}"
        )


def _query(folder: Path) -> dict[str, str]:
    """What the file says, as far as it says anything: its bytes are what matters."""
    data = (folder / "query.json").read_bytes()
    with suppress(ValueError, RecursionError):
        found = json.loads(data)
        if isinstance(found, dict):
            return {key: _text(value) for key, value in found.items() if key}
    return dict.fromkeys(("run", "window", "file", "before"), data[:2000].decode("latin-1"))


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode()[:20_000]


@cache
def _plugin() -> Any:
    """Torch's own plugin, repaired, on one logdir for as long as this process lives: it looks for runs all the time."""
    import tempfile
    from argparse import Namespace

    from tensorboard.plugins.base_plugin import TBContext
    from torch_tb_profiler.plugin import TorchProfilerPlugin

    from harness.board.official.at_load import repair

    repair()
    logs = Path(tempfile.mkdtemp()) / "logs"
    layout.manifest(logs / "mine" / "run")
    layout.window(logs / "mine" / "run", 10, "matmul_64")
    plugin = TorchProfilerPlugin(TBContext(flags=Namespace(logdir=str(logs), logdir_spec="")))
    return plugin.get_plugin_apps()


def ask_plugin(folder: Path) -> None:
    """Every route of the repaired plugin, likewise."""
    from werkzeug.test import Client

    query = _query(folder) | {"worker": "host_0", "span": "step 10"} | _query(folder)
    for route, app in _plugin().items():
        if "*" in route or "index" in route:
            continue
        answer = Client(app).open(f"/data/plugin/pytorch_profiler{route}", query_string=query)
        assert answer.status_code in (200, 302, 304, 400, 404, 422), f"{route}: {answer.status}: {answer.text[:500]}"


def parameters(data: bytes, draw: Draw) -> bytes:
    query = json.loads(data) | {
        "view": "Overview",
        "worker": "host_0",
        "span": "step 10",
        "op_name": "aten::mm",
        "exp_run": "mine/run",
    }
    for _ in range(draw.choice((1, 1, 2, 4))):
        query[draw.choice(list(query))] = draw.choice(mutations.ODD)
    return json.dumps(query).encode()


READERS = (
    Reader("trace", partial(copied_trace, packed=False), ("*.json",), mutations.of_text, read_trace),
    Reader("compressed trace", partial(copied_trace, packed=True), ("*.gz",), mutations.of_gzip, read_trace),
    Reader("trace, as a timeline", partial(copied_trace, packed=False), ("*.json",), mutations.of_text, read_timeline),
    Reader(
        "trace, in torch's plugin", partial(copied_trace, packed=False), ("*.json",), mutations.of_text, read_in_plugin
    ),
    Reader("window.json", a_window, (f"{WINDOW}/window.json",), mutations.of_text, read_findings),
    Reader("window.json and run.json, in the tab", a_window, ("**/*.json",), mutations.of_text, read_tab, lambda: ()),
    Reader("run.json", a_window, (f"{RUN}/run.json",), mutations.of_text, read_manifest),
    Reader("checkpoint", a_checkpoint, (f"{STEP}.pt",), mutations.of_bytes, read_checkpoint),
    Reader(
        "checkpoint, its values", a_checkpoint, (f"{STEP}.pt",), other_values, read_checkpoint, can_be_misplaced=False
    ),
    Reader(
        *("sharded checkpoint", a_sharded_checkpoint, (f"{STEP}/*", f"{STEP}/.metadata"), mutations.of_bytes),
        read=read_sharded_checkpoint,
    ),
    Reader("memory snapshot", a_snapshot, ("oom.pickle",), other_snapshot, read_snapshot, snapshot_errors),
    Reader("trigger", a_request, (f"{RUN}/.trigger.*",), mutations.of_text, read_request, lambda: ()),
    Reader("overrides.yaml", overrides, (f"{RUN}/.hydra/overrides.yaml",), mutations.of_lines, read_overrides),
    Reader(
        *("waiting window", a_waiting_window, (".logs.staging/**/*.job", ".logs.staging/**/*.json"), mutations.of_text),
        *(publish_waiting, lambda: ()),
    ),
    Reader("sweep.json", a_sweep, ("logs/mine/*.sweep.json",), mutations.of_text, read_sweep),
    Reader("the tab's parameters", addresses, ("query.json",), parameters, ask_tab, lambda: (), False),
    Reader("the plugin's parameters", addresses, ("query.json",), parameters, ask_plugin, lambda: (), False),
)


def good(reader: Reader, folder: Path) -> None:
    """A folder with the reader's good files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    reader.make(folder)


def choose_file(reader: Reader, folder: Path, draw: random.Random) -> Path:
    """The file that is damaged."""
    found = sorted({path for pattern in reader.files for path in folder.glob(pattern) if path.is_file()})
    return draw.choice(found)
