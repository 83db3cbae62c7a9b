"""TensorBoard's flags, read as TensorBoard reads them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.data_ingester import _parse_event_files_spec as theirs

from harness.logdir.flags import logdirs, logdirs_of
from harness.logdir.scan import Logdir


def read(logdir: str, spec: str = "") -> dict[str, str]:
    """Names by path."""
    return {str(one.path): one.name for one in logdirs(logdir, spec)}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("one", "two", "a,b", "n:one", "~odd"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("one")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "spec",
    [
        "a:one",
        "one",
        "one/",
        "./one",
        "~/one",
        "link",
        "a:one,b:two",
        "a:~/one,b:{here}/two",
        "same:one,same:two",
        "a:one,b:one",
        "a:{here}/one:with/colon",
        "{here}/x:y/one",
        ":one",
        "a b:one,ü%:two",
        "a:",
        "one,a:two/",
        "a:one,hdfs://host/b",
        "a:s3://bucket/x,b:two",
        "gs://bucket/x:y,b:two",
    ],
)
def test_a_list_is_what_tensorboard_makes_of_it(spec: str, here: Path) -> None:
    spec = spec.format(here=here)
    expected = {path: name for path, name in theirs(spec).items() if "://" not in path}
    found = read("", spec)
    assert list(found) == list(expected)
    # Where it has no name for one of several, its dashboards show one of two runs that are called the same.
    several = "," in spec
    for path, name in expected.items():
        assert found[path] == (name or (Path(path).name if several else ""))


@pytest.mark.parametrize("logdir", ["one", "one/", "./one", "{here}/one", "~/one", "link", "to/come"])
def test_a_logdir_is_one_directory(logdir: str, here: Path) -> None:
    logdir = logdir.format(here=here)
    assert read(logdir) == {str(here / ("to/come" if "come" in logdir else "one")): ""}


@pytest.mark.parametrize("logdir", ["a,b", "n:one"])
def test_a_directory_that_is_there_is_no_list_whatever_its_name(logdir: str, here: Path) -> None:
    assert read(logdir) == {str(here / logdir): ""}


@pytest.mark.parametrize(
    ("logdir", "names"),
    [
        ("one,two", {"one": "one", "two": "two"}),
        ("x:one,y:two", {"one": "x", "two": "y"}),
        ("x:one", {"one": "x"}),
        ("one/,two/", {"one": "one", "two": "two"}),
        ("~/one,{here}/two", {"one": "one", "two": "two"}),
        ("one,", {"one": ""}),
        ("one,to/come", {"one": "one", "to/come": "come"}),
        ("one,s3://bucket/x", {"one": "one"}),
        ("nothing,of/it", {"nothing,of/it": ""}),
    ],
)
def test_a_logdir_that_is_none_may_be_a_list(logdir: str, names: dict[str, str], here: Path) -> None:
    assert read(logdir.format(here=here)) == {str(here / path): name for path, name in names.items()}


@pytest.mark.parametrize("address", ["s3://bucket/logs", "hdfs://host:9000/logs", "gs://a,b"])
def test_another_file_system_is_no_folder_here(address: str, here: Path) -> None:
    (here / address.partition("//")[0] / "bucket").mkdir(parents=True)
    assert read(address) == {}


def test_a_list_that_comes_later_is_one_then(here: Path) -> None:
    context = Namespace(flags=Namespace(logdir="three,four", logdir_spec=""))
    assert logdirs_of(context) == [Logdir("", here / "three,four")]
    (here / "three").mkdir()
    assert [one.name for one in logdirs_of(context)] == ["three", "four"]


def test_the_context_tells_where_there_are_no_flags(here: Path) -> None:
    assert logdirs_of(Namespace(flags=None, logdir="one")) == [Logdir("", here / "one")]
    assert logdirs_of(Namespace(flags=Namespace(logdir=None, logdir_spec=None))) == []
