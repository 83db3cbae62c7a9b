"""Parameters, gradients and optimizer state, counted."""

from __future__ import annotations

import torch
from torch import nn

from harness.train.composition import Composition, composition


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(4, 100)).sum().backward()
    optimizer.step()


def test_each_part_has_its_bytes_and_adam_twice_those_of_the_parameters() -> None:
    model = nn.Sequential(nn.Linear(100, 50), nn.BatchNorm1d(50))
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer)
    parameters = 4 * (100 * 50 + 50 + 50 + 50)
    buffers = 4 * (50 + 50) + 8
    counters = 4 * 4
    found = composition(model, optimizer)
    assert found.parameters == parameters + buffers
    assert found.gradients == parameters
    assert found.optimizer_state == 2 * parameters + counters
    assert found.activations_and_rest is None


def test_gradients_are_gone_after_zero_grad_and_there_may_be_no_optimizer() -> None:
    model = nn.Linear(100, 50)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer)
    assert composition(model, None).gradients == 4 * (100 * 50 + 50)
    optimizer.zero_grad()
    found = composition(model, None)
    assert (found.gradients, found.optimizer_state) == (0, 0)


def test_tied_weights_count_once() -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
    model[1].weight = model[0].weight
    assert composition(model, None).parameters == 4 * 64 * 64


def test_a_sparse_gradient_counts_with_the_rows_that_it_has() -> None:
    model = nn.Embedding(1000, 8, sparse=True)
    model(torch.tensor([1, 2, 3])).sum().backward()
    assert composition(model, None).gradients == 4 * 3 * 8


def test_the_parts_sum_to_the_peak() -> None:
    found = Composition(parameters=10, gradients=10, optimizer_state=20).with_peak(100)
    assert sum(count for _, count in found.parts()) == 100
    assert found.scalars()["memory/activations_and_rest_mib"] == 60 / 2**20
