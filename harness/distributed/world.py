"""The processes of one job: who this one is among them, and what they say to each other.

Started by torchrun, by ``harness train trainer.devices=N``, or by anything else that sets torch's own variables
(``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``, ``LOCAL_RANK``, ``LOCAL_WORLD_SIZE``). The only process
of a job needs no torch here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

LEAVE_S = 600.0
"""How long a rank waits at the job's end for rank 0, which still publishes and writes; then it ends by itself."""
FAIL_S = 5.0
"""The same after an error, which the other ranks may not have."""
_PATH, _OVER = "harness/path", "harness/over"


@dataclass(frozen=True, kw_only=True)
class World:
    """This process among those of its job; by default it is the only one.

    Methods that move data are collectives: every rank calls them, in the same order.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Among the processes of this machine."""
    local_size: int = 1
    restart: int = 0
    """How often an elastic launcher has started the job's processes again."""
    store: Any = None
    """The key-value store that the ranks met at; None where there is no process group."""

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which writes, logs and publishes for all."""
        return self.rank == 0

    @property
    def joined(self) -> bool:
        """Whether somebody has started this process as one of a job's."""
        return self.store is not None

    def agree(self, key: str, proposal: str) -> str:
        """The same string on every rank, also after a restart: the proposal of whoever came first."""
        if self.store is None:
            return proposal
        said: bytes = _lasting(self.store).compare_set(f"harness/{key}", "", proposal)
        return said.decode()

    def note_path(self, path: str) -> None:
        """Remember where the run lies, for the processes of a restart."""
        if self.store is not None and self.leads:
            _lasting(self.store).set(_PATH, path)

    def earlier_path(self) -> str | None:
        """Where the run lies that the processes before a restart have begun; None where they had not begun any."""
        if self.store is None or not self.restart:
            return None
        store = _lasting(self.store)
        return str(store.get(_PATH).decode()) if store.check([_PATH]) else None

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place, on the tensor's device."""
        if self.size > 1:
            from torch import distributed as dist

            dist.all_reduce(tensor)
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in the order of the ranks, on every rank; values are pickled."""
        if self.size == 1:
            return [value]
        from torch import distributed as dist

        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def check(self, error: Exception | None) -> None:
        """Raise on all ranks what one of them has met, so that none waits for another that has ended.

        Raises:
            Exception: this rank's own error.
            UsageError: another rank's, named with its rank.
        """
        problems = self.gather(None if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        for rank, problem in enumerate(problems):
            if problem is not None:
                raise UsageError(f"rank {rank}: {problem}")

    @contextmanager
    def together(self) -> Iterator[None]:
        """What every rank does by itself, without a collective; no rank goes on unless all could: see :meth:`check`."""
        try:
            yield
        except Exception as error:
            self.check(error)
        else:
            self.check(None)

    def recording(self, wanted: str | int | Sequence[int]) -> list[int]:
        """The ranks that record windows: ``all``, ``hosts`` (the first of each), so many spread evenly, or a list."""
        if wanted == "hosts":
            hosts = self.gather(socket.gethostname())
            return [rank for rank, host in enumerate(hosts) if host not in hosts[:rank]]
        if wanted == "all":
            return list(range(self.size))
        if isinstance(wanted, int):
            count = min(wanted, self.size)
            return sorted({number * self.size // count for number in range(count)})
        assert not isinstance(wanted, str)
        return sorted({rank for rank in wanted if rank < self.size})

    def leave(self, *, failed: bool) -> None:
        """End together: a launcher takes the first process that ends as its sign to end the others.

        Rank 0 says that it is done, the others wait for that.
        """
        if self.store is None:
            return
        # A store that is gone is an answer too.
        with suppress(Exception):
            if self.leads:
                self.store.set(_OVER, "1")
            else:
                self.store.wait([_OVER], timedelta(seconds=FAIL_S if failed else LEAVE_S))
        if not failed:
            from torch import distributed as dist

            with suppress(Exception):
                dist.destroy_process_group()


def join() -> World:
    """Meet the other ranks, if the environment says that there are any.

    Raises:
        UsageError: where the variables cannot be, or the others cannot be reached.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return World()
    import torch
    from torch import distributed as dist
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    try:
        restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
        store, rank, size = next(rendezvous("env://"))
        # The launcher's store outlives the processes, with all that the dead ones have left in it.
        store = PrefixStore(f"harness/attempt_{restart}", store)
        # CPU tensors and objects go by gloo also where there are GPUs.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        return World(
            rank=rank,
            size=size,
            local_rank=int(os.environ.get("LOCAL_RANK", rank)),
            local_size=int(os.environ.get("LOCAL_WORLD_SIZE", size)),
            restart=restart,
            store=store,
        )
    except (ValueError, RuntimeError) as error:
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        values = ", ".join(f"{name}={os.environ.get(name, '')}" for name in names)
        raise UsageError(f"this process cannot join the others of its job ({values}): {error}") from error


def alone() -> None:
    """A process group of this process alone, which sharding needs, if there is none yet."""
    import torch
    from torch import distributed as dist
    from torch._C._distributed_c10d import HashStore

    if not dist.is_initialized():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", store=HashStore(), rank=0, world_size=1
        )


def _lasting(store: Any) -> Any:
    """The store without the prefix that changes with each restart."""
    from torch._C._distributed_c10d import PrefixStore

    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store
