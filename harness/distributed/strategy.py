"""How a model is spread over the ranks of a job: not at all, replicated (DDP), or sharded (FSDP2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from harness.errors import UsageError

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata


class Strategy:
    """One process, or several that share nothing: the model as it is.

    Args:
        model: On its device.
    """

    sharded = False
    """Whether a rank holds only its part of parameters and optimizer state; a checkpoint is every rank's then."""
    casts = False
    """Whether the strategy itself runs the forward pass in lower precision, so that autocast must not."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        """Whose parameters and state count."""

    @property
    def train_forward(self) -> Callable[..., Any]:
        """What a training step calls."""
        return self.model

    @property
    def eval_forward(self) -> Callable[..., Any]:
        """What an evaluation calls."""
        return self.model

    def without_sync(self) -> AbstractContextManager[Any]:
        """Around a batch whose gradients are only added up: the ranks exchange them with the step's last one."""
        return nullcontext()

    def synchronize_buffers(self) -> None:
        """Give every rank rank 0's buffers, as the running means of a BatchNorm, before they are used."""

    def save(self, folder: Path, optimizer: torch.optim.Optimizer | None) -> None:
        """Write this rank's part of model and optimizer; every rank's to call.

        Raises:
            RuntimeError: on every rank, where one of them cannot write.
        """
        raise NotImplementedError(f"{type(self).__name__} holds the whole model; save its state_dict")

    def load(self, folder: Path, optimizer: torch.optim.Optimizer | None) -> None:
        """Read what :meth:`save` has written, at any number of ranks; every rank's to call.

        Raises:
            RuntimeError: on every rank, where one of them cannot read, or it is of another model.
            UsageError: on every rank, where a file is damaged, or would run code.
        """
        raise NotImplementedError(f"{type(self).__name__} holds the whole model; load its state_dict")


class Replicated(Strategy):
    """DistributedDataParallel: the whole model on each rank, gradients averaged while the backward pass runs.

    Args:
        find_unused_parameters: For a model that leaves out parameters in some steps; costs a walk over the graph.
    """

    def __init__(self, model: nn.Module, *, find_unused_parameters: bool = False) -> None:
        super().__init__(model)
        device = next(model.parameters()).device
        self._wrapped = nn.parallel.DistributedDataParallel(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            find_unused_parameters=find_unused_parameters,
        )

    @property
    def train_forward(self) -> Callable[..., Any]:
        return self._wrapped

    def without_sync(self) -> AbstractContextManager[Any]:
        return self._wrapped.no_sync()

    def synchronize_buffers(self) -> None:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, 0)


class Sharded(Strategy):
    """FSDP2, ``fully_shard``: each rank keeps its part of every block, and gathers a block just before it runs.

    Args:
        blocks: The modules that are gathered at a time; the rest of the model is one more.
        param_dtype: In which parameters are gathered and the forward pass runs; None keeps their own. Gradients are
            reduced in fp32, outputs are fp32.
        reshard_after_forward: Free a block's parameters until the backward pass, which gathers them again.
    """

    sharded = True

    def __init__(
        self,
        model: nn.Module,
        blocks: Sequence[nn.Module],
        *,
        device: torch.device,
        param_dtype: torch.dtype | None = None,
        reshard_after_forward: bool = True,
    ) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        reduce_dtype = None if param_dtype is None else torch.float32
        policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype)
        for block in blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard_after_forward)
        policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype, output_dtype=reduce_dtype)
        self._root = fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard_after_forward)
        self.casts = param_dtype is not None
        super().__init__(model)

    @contextmanager
    def without_sync(self) -> Iterator[None]:
        self._root.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self._root.set_requires_gradient_sync(True)

    def save(self, folder: Path, optimizer: torch.optim.Optimizer | None) -> None:
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        with _as_runtime_error():
            save(self._state(optimizer), storage_writer=FileSystemWriter(folder, sync_files=True))

    def load(self, folder: Path, optimizer: torch.optim.Optimizer | None) -> None:
        from torch.distributed.checkpoint.state_dict import set_state_dict
        from torch.distributed.checkpoint.state_dict_loader import load

        from harness.distributed.sharded import Planner, Reader

        state = self._state(optimizer)
        reader = Reader(folder, _metadata(folder))
        with _as_runtime_error():
            load(state, storage_reader=reader, planner=Planner())
        set_state_dict(
            self.model,
            [] if optimizer is None else optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )

    def _state(self, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizers = get_state_dict(self.model, [] if optimizer is None else optimizer)
        return {"model": model, "optimizer": optimizers}


def _metadata(folder: Path) -> Metadata:
    """Read by every rank; what one of them refuses, none goes on with."""
    from harness.distributed.sharded import read_metadata

    found: Metadata | None = None
    problem: UsageError | None = None
    try:
        found = read_metadata(folder)
    except UsageError as error:
        problem = error
    problems: list[UsageError | None] = [None] * dist.get_world_size()
    dist.all_gather_object(problems, problem)
    for told in problems:
        if told is not None:
            raise told
    assert found is not None
    return found


@contextmanager
def _as_runtime_error() -> Iterator[None]:
    """Torch's own error of a distributed checkpoint is no Exception. What it wraps of ours stays what it is."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        first = next(iter(error.failures.items()), None)
        if first is not None and isinstance(first[1][0], UsageError):
            raise first[1][0] from error
        told = f"rank {first[0]}: {first[1][0]}" if first is not None else str(error)
        raise RuntimeError(told) from error


def find_blocks(model: nn.Module, names: Sequence[str] | None = None) -> list[nn.Module]:
    """The repeated parts that a model is stacked from, outermost only, in order.

    Args:
        names: Their classes' names; None takes the classes that occur more than once among the children of a
            ModuleList or Sequential, and are made of other modules themselves.

    Raises:
        UsageError: where no module of the model has one of the names.
    """
    found: list[nn.Module] = []

    def walk(module: nn.Module) -> None:
        children = list(module.children())
        kinds = Counter(type(child) for child in children)
        stacked = isinstance(module, nn.ModuleList | nn.Sequential)
        for child in children:
            if names is not None:
                is_block = type(child).__name__ in names
            else:
                is_block = stacked and kinds[type(child)] > 1 and any(True for _ in child.children())
            if is_block and any(True for _ in child.parameters()):
                found.append(child)
            else:
                walk(child)

    walk(model)
    if names is not None and not found:
        there = sorted({type(module).__name__ for module in model.modules()})
        raise UsageError(f"strategy.blocks={list(names)}: the model has no such module; it has {', '.join(there)}")
    return found


def checkpoint_activations(blocks: Sequence[nn.Module]) -> None:
    """Run each block's forward pass a second time in the backward pass, in place of keeping what it computes.

    (Chen et al., 2016.) Names of modules and parameters stay as they are.
    """
    for block in blocks:
        block.forward = _recomputed(block.forward)


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def recomputed(*arguments: Any, **named: Any) -> Any:
        return checkpoint(forward, *arguments, use_reentrant=False, **named)

    return recomputed


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or all of one that is spread over the ranks; every rank's to call."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full
