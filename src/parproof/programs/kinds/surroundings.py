"""One and the same all_reduce in the surroundings a program may call it in."""

from __future__ import annotations

import _thread
import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._python_dispatch import TorchDispatchMode

from parproof.programs.kinds.asked import Asked, Kind
from parproof.programs.kinds.classic import B, four
from parproof.ranks.context import RankContext


class _ReducedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        dist.all_reduce(gradient)
        return gradient


class _PlainSubclass(torch.Tensor):
    pass


class _SubclassWithoutDispatch(torch.Tensor):
    __torch_dispatch__ = torch._C._disabled_torch_dispatch_impl


class _WrappingMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _in_backward(ctx: RankContext) -> None:
    apply: Any = _ReducedGradient.apply
    apply(four().requires_grad_()).sum().backward()


def _in_thread(ctx: RankContext) -> None:
    thread = threading.Thread(target=lambda: dist.all_reduce(four()), name="sender")
    thread.start()
    thread.join()


def _in_raw_thread(ctx: RankContext) -> None:
    """A thread that `threading` does not know of."""
    done: list[int] = []

    def work() -> None:
        dist.all_reduce(four())
        done.append(1)

    _thread.start_new_thread(work, ())
    while not done:
        time.sleep(0.001)


def _in_pool(ctx: RankContext) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(dist.all_reduce, four()).result()


def _in_callback(ctx: RankContext) -> None:
    """The backend's own thread runs it."""
    work: Any = dist.all_reduce(four(), async_op=True)
    work.get_future().then(lambda done: dist.all_reduce(four())).wait()


def _inside(mode: Callable[[], Any]) -> Callable[[RankContext], None]:
    def do(ctx: RankContext) -> None:
        with mode():
            dist.all_reduce(four())

    return do


def _on(kind: type[Tensor]) -> Callable[[RankContext], None]:
    return lambda ctx: dist.all_reduce(four().as_subclass(kind))


def _fake(ctx: RankContext) -> None:
    """Shapes only: nothing is sent, so nothing may be written down."""
    with FakeTensorMode():
        functional.all_reduce(torch.empty(4), "sum", ctx.group)


def _compiled(backend: str) -> Callable[[RankContext], None]:
    def do(ctx: RankContext) -> None:
        """Traced once, run twice; the traced call is not a call."""
        torch._dynamo.reset()

        def step(x: Tensor) -> Tensor:
            total: Tensor = functional.wait_tensor(functional.all_reduce(x * 2, "sum", ctx.group))
            return total + 1

        compiled = torch.compile(step, backend=backend, fullgraph=True)
        compiled(four())
        compiled(four())

    return do


ONE = [Asked("all_reduce", B, B, reduce_op="sum")]
ONE_ASYNC = [Asked("all_reduce", B, B, reduce_op="sum", is_async=True)]

KINDS = [
    Kind("no_grad", _inside(torch.no_grad), lambda r, w: ONE),
    Kind("inference_mode", _inside(torch.inference_mode), lambda r, w: ONE),
    Kind("autograd_function_backward", _in_backward, lambda r, w: ONE),
    Kind("thread", _in_thread, lambda r, w: ONE),
    Kind("raw_thread", _in_raw_thread, lambda r, w: ONE),
    Kind("thread_pool", _in_pool, lambda r, w: ONE),
    Kind("future_callback", _in_callback, lambda r, w: ONE_ASYNC + ONE),
    Kind("comm_debug_mode", _inside(CommDebugMode), lambda r, w: ONE),
    Kind("other_dispatch_mode", _inside(_WrappingMode), lambda r, w: ONE),
    Kind("fake_tensor_mode", _fake, lambda r, w: []),
    Kind("tensor_subclass", _on(_PlainSubclass), lambda r, w: ONE),
    Kind("subclass_without_dispatch", _on(_SubclassWithoutDispatch), lambda r, w: ONE),
    Kind("group_method", lambda ctx: ctx.group.allreduce([four()]).wait(), lambda r, w: ONE_ASYNC),
    Kind("compiled_functional", _compiled("aot_eager"), lambda r, w: 2 * ONE_ASYNC),
]


def raises_and_goes_on(ctx: RankContext) -> None:
    """torch refuses the first call; the second is a good one."""
    try:
        dist.all_gather([torch.ones(3) for _ in range(ctx.world_size)], four())
    except RuntimeError:
        dist.all_reduce(four())


def many_threads(ctx: RankContext, num: int) -> None:
    """Short threads in a row, one all_reduce each."""
    for _ in range(num):
        _in_thread(ctx)


def thread_that_stays(ctx: RankContext) -> None:
    """The second run of this program is sent from a thread that the first one started."""
    global _worker
    if _worker is None:
        _worker = concurrent.futures.ThreadPoolExecutor(1)
    _worker.submit(dist.all_reduce, four()).result()


_worker: concurrent.futures.ThreadPoolExecutor | None = None
