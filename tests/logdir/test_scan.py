"""Which runs and windows lie below logdirs, and what they are called."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.logdir import scan
from harness.logdir.scan import Found, Logdir, Scanner, find_runs, pass_over, windows, windows_in


def window(run: Path, step: int) -> Path:
    folder = run / "profile" / f"window_{step:08d}"
    folder.mkdir(parents=True)
    (folder / "host_0.1.pt.trace.json").write_text("{}")
    return folder


def look(*logdirs: Path | Logdir, bounded: bool = True) -> Found:
    given = [one if isinstance(one, Logdir) else Logdir("", one) for one in logdirs]
    return Scanner(pass_over, bounded=bounded).look(given)


def names(found: Iterable[scan.Run | scan.Loose]) -> list[str]:
    return [one.name for one in found]


def steps(run: scan.Run) -> list[int | None]:
    return [window.step for window in run.windows]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A run with a manifest and one without, each of one window."""
    window(tmp_path / "logs" / "exp" / "one", 7)
    (tmp_path / "logs" / "exp" / "one" / "run.json").write_text("{}")
    window(tmp_path / "logs" / "two", 9)
    return tmp_path / "logs"


def test_a_run_is_a_folder_with_a_manifest_or_with_windows(logs: Path) -> None:
    (logs / "begun").mkdir()
    (logs / "begun" / "run.json").write_text("{}")
    (logs / "empty" / "profile").mkdir(parents=True)
    assert names(look(logs).runs) == ["begun", "exp/one", "two"]
    assert [steps(run) for run in look(logs).runs] == [[], [7], [9]]


def test_windows_may_lie_in_the_folder_itself_and_a_window_may_be_all_there_is(logs: Path) -> None:
    (logs / "two" / "profile").rename(logs / "moved")
    assert names(look(logs).runs) == ["exp/one", "moved"]
    for path in (logs / "moved", logs / "moved" / "window_00000009", logs / "exp" / "one", logs / "exp/one/profile"):
        (run,) = look(path).runs
        assert run.name == "."
        assert len(run.windows) == 1


def test_a_run_in_a_run_is_one_too_but_what_was_put_aside_in_it_is_none(logs: Path) -> None:
    run = logs / "exp" / "one"
    window(run / "inner", 3)
    window(run / "checkpoints" / "copy", 3)
    (window(run / "tmp", 5).parent).rename(run / "kept")
    found = look(logs)
    assert names(found.runs) == ["exp/one", "exp/one/inner", "two"]
    assert names(found.loose) == ["exp/one/kept/window_00000005"]


def test_traces_beside_a_runs_windows_do_not_take_its_name(logs: Path) -> None:
    (logs / "two" / "host_0.5.pt.trace.json.gz").write_text("")
    (logs / "two" / "profile" / "host_0.6.pt.trace.json").write_text("")
    (logs / "loose").mkdir()
    (logs / "loose" / "a.pt.trace.json").write_text("")
    found = look(logs)
    assert names(found.runs) == ["exp/one", "two"]
    assert names(found.loose) == ["loose", "two (2)", "two/profile"]


def test_a_link_into_the_logdir_is_another_way_to_what_lies_there(logs: Path) -> None:
    (logs / "a run").symlink_to("exp/one")
    (logs / "a group").symlink_to(logs / "exp")
    (logs / "exp" / "again").symlink_to("one")
    expected = ["a group/again", "a group/one", "a run", "exp/again", "exp/one", "two"]
    assert names(look(logs).runs) == expected
    assert [steps(run) for run in look(logs).runs] == [[7]] * 5 + [[9]]


def test_links_round_about_and_to_nothing_end(logs: Path) -> None:
    (logs / "loop").symlink_to(logs)
    (logs / "exp" / "up").symlink_to("..")
    (logs / "self").symlink_to("self")
    (logs / "gone").symlink_to("nothing")
    (logs / "file").symlink_to("exp/one/run.json")
    (logs / "here").symlink_to("two/profile")
    assert names(look(logs).runs) == ["exp/one", "here", "two"]


def test_two_folders_that_lead_to_each_other_end(logs: Path) -> None:
    (logs / "two" / "to exp").symlink_to("../exp")
    (logs / "exp" / "to two").symlink_to("../two")
    assert names(look(logs).runs) == ["exp/one", "exp/to two", "two", "two/to exp/one"]


def test_folders_full_of_links_to_each_other_are_looked_through_in_no_time(tmp_path: Path) -> None:
    """There are 10! ways through them."""
    folders = [tmp_path / f"folder{number}" for number in range(10)]
    for folder in folders:
        window(folder / "run", 1)
        for other in folders:
            (folder / f"to {other.name}").symlink_to(other)
    assert 10 <= len(look(tmp_path).runs) < 2000


@pytest.mark.parametrize("bounded", [True, False])
def test_no_link_leads_out_of_the_logdirs(logs: Path, tmp_path: Path, bounded: bool) -> None:
    window(tmp_path / "outside" / "run", 1)
    (logs / "away").symlink_to(tmp_path / "outside")
    (logs / "two" / "profile" / "window_00000011").symlink_to(tmp_path / "outside/run/profile/window_00000001")
    (logs / "three").mkdir()
    (logs / "three" / "run.json").write_text("{}")
    (logs / "three" / "profile").symlink_to(tmp_path / "outside/run/profile")
    found = look(logs, bounded=bounded).runs
    assert {run.name: steps(run) for run in found} == {"exp/one": [7], "three": [], "two": [9]}
    both = look(Logdir("a", logs), Logdir("b", tmp_path / "outside"), bounded=bounded).runs
    assert {run.name: steps(run) for run in both} == {
        "a/away/run": [1],
        "a/exp/one": [7],
        "a/three": [1],
        "a/two": [9, 11],
        "b/run": [1],
    }


def test_a_server_lists_no_file_that_is_a_link_out_and_a_command_reads_it(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.pt.trace.json").write_text("{}")
    (logs / "two/profile/window_00000009/host_1.1.pt.trace.json").symlink_to(tmp_path / "secret.pt.trace.json")
    listed = {bounded: look(logs, bounded=bounded).runs[-1].windows[0].traces() for bounded in (True, False)}
    assert list(listed[True]) == ["host_0.1.pt.trace.json"]
    assert list(listed[False]) == ["host_0.1.pt.trace.json", "host_1.1.pt.trace.json"]


def test_runs_of_one_name_are_told_apart_by_a_number(logs: Path, tmp_path: Path) -> None:
    window(tmp_path / "more" / "two", 1)
    found = look(Logdir("x", logs), Logdir("x", tmp_path / "more")).runs
    assert names(found) == ["x/exp/one", "x/two", "x/two (2)"]
    assert found[-1].path == tmp_path / "more" / "two"


@pytest.mark.parametrize("name", ["with space", "50%", "%2e%2e", "ü λ 🔥", "a+b&c=d#e", "<b>", "'\"", "two\nlines"])
def test_any_name_is_taken_as_it_is(name: str, tmp_path: Path) -> None:
    window(tmp_path / "logs" / name, 4)
    assert names(look(tmp_path / "logs").runs) == [name]


def test_bytes_that_are_no_text_are_named_in_letters(tmp_path: Path) -> None:
    window(tmp_path / "logs" / os.fsdecode(b"r\xff"), 4)
    window(tmp_path / "logs" / r"r\udcff", 4)
    found = look(tmp_path / "logs").runs
    assert sorted(names(found)) == [r"r\udcff", r"r\udcff (2)"]
    assert len({run.path for run in found}) == 2


def test_what_is_no_window_is_not_listed(logs: Path) -> None:
    profile = logs / "two" / "profile"
    (profile / "window_00000010").write_text("")
    (profile / "window_x").mkdir()
    (profile / "window_7").mkdir()
    assert [window.name for window in windows(logs / "two")[:1]] == ["window_7"]
    assert [path.name for path in windows_in(profile)] == ["window_7", "window_00000009"]
    assert windows_in(logs / "nothing") == []


def test_what_changes_is_seen(logs: Path) -> None:
    scanner = Scanner(pass_over, bounded=True)
    given = [Logdir("", logs)]
    assert names(scanner.look(given).runs) == ["exp/one", "two"]
    for path in (logs, logs / "two" / "profile", logs / "two" / "profile" / "window_00000009"):
        os.utime(path, (1, 1))
    assert names(scanner.look(given).runs) == ["exp/one", "two"]
    window(logs / "three", 1)
    window(logs / "two", 11)
    found = scanner.look(given).runs
    assert names(found) == ["exp/one", "three", "two"]
    assert [window.step for window in scanner.windows(found[-1])] == [9, 11]


def test_a_folder_that_has_not_changed_is_not_read_again(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, _, _ in os.walk(logs):
        os.utime(folder, (time.time() - 60,) * 2)
    read: list[Path] = []
    real = scan._read_folder
    monkeypatch.setattr(scan, "_read_folder", lambda path: read.append(path) or real(path))
    scanner = Scanner(pass_over)
    for _ in range(3):
        assert len(scanner.look([Logdir("", logs)]).runs) == 2
    assert len(read) == len(set(read))
    (logs / "two" / "profile" / "window_00000010").mkdir()
    scanner.look([Logdir("", logs)])
    assert {path.name for path in read if read.count(path) > 1} == {"profile"}


def failing(monkeypatch: pytest.MonkeyPatch, number: int, where: str) -> None:
    real = scan._read_folder

    def read(path: Path) -> object:
        if path.name == where:
            raise OSError(number, os.strerror(number), str(path))
        return real(path)

    monkeypatch.setattr(scan, "_read_folder", read)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT])
def test_folders_that_are_closed_or_gone_hide_no_other(
    number: int, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, number, "exp")
    assert names(find_runs(logs)) == names(look(logs).runs) == ["two"]


def test_a_file_system_that_fails_is_told_but_by_a_server(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, errno.EIO, "exp")
    assert names(look(logs).runs) == ["two"]
    with pytest.raises(OSError, match="Input/output error"):
        find_runs(logs)


def test_its_own_process_is_told_of_windows_that_it_cannot_list(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, errno.EACCES, "profile")
    with pytest.raises(PermissionError):
        windows(logs / "two")


def test_a_window_is_picked_by_its_step_or_from_the_newest_and_an_empty_one_is_none(logs: Path) -> None:
    for step in (3, 12):
        window(logs / "two", step)
    (logs / "two" / "profile" / "window_00000050").mkdir()
    run = find_runs(logs)[-1]
    assert [run.window(number).step for number in (3, 9, 12, -1, -2, -3)] == [3, 9, 12, 12, 9, 3]
    for number in (50, 4, -4, -(10**30), 10**30):
        with pytest.raises(UsageError, match="there are 3, 9, 12"):
            run.window(number)
