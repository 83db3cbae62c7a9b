"""Names of runs, and how ``conf/`` comes by them."""

from __future__ import annotations

from omegaconf import OmegaConf

from harness.config import names


def composed(**more: object) -> dict[str, str]:
    config = OmegaConf.create(
        {
            "logdir": "logs",
            "resume": None,
            "sweep": None,
            "run": "${run_dir:${logdir},experiment,${resume}}",
            "job": "${sweep_subdir:${sweep},3,'lr=0.1'}",
            **more,
        }
    )
    return {"run": config.run, "job": config.job}


def test_the_resolvers_know_the_run_for_as_long_as_it_is_composed_and_no_longer() -> None:
    with names.resolvers("first"):
        assert composed() == {"run": "logs/experiment/first", "job": "first_003_lr=0.1"}
        assert composed(resume="a/run", sweep="earlier") == {"run": "a/run", "job": "earlier_003_lr=0.1"}
    assert not OmegaConf.has_resolver("run_dir")
    with names.resolvers("second"):
        assert composed()["run"] == "logs/experiment/second"
    assert not OmegaConf.has_resolver("sweep_subdir")


def test_no_two_names_are_the_same() -> None:
    assert len({names.new_name() for _ in range(50)}) == 50
