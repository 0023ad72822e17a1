"""A checkpoint that any world size can read: each rank writes the slices it owns, a reader joins them."""

from __future__ import annotations

import pathlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.errors import UsageError

if TYPE_CHECKING:
    from parproof.subjects.reference.zero_training import Training

Slices = dict[str, dict[str, Any]]
_WRITER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")


def snapshot(training: Training) -> Slices:
    """Copies of the owned slices: name → start, length of the whole, step, parameter and optimizer tensors."""
    slices: Slices = {}
    for buffer, part, parameter, _ in training.own_slices():
        state = training.optimizer.state.get(part.name, {})
        slices[part.name] = {
            "start": part.start,
            "numel": buffer.parameters[part.name].numel(),
            "step": training.optimizer.num_steps.get(part.name, 0),
            "tensors": {"parameter": parameter.clone()} | {key: t.clone() for key, t in state.items()},
        }
    return slices


def write(directory: str, slices: Slices) -> None:
    """One file a rank. Ranks that hold copies write the same values under their own names."""
    folder = pathlib.Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(slices, folder / f"rank{dist.get_rank()}.pt")


def write_async(directory: str, slices: Slices) -> Future[None]:
    """Write in another thread."""
    return _WRITER.submit(write, directory, slices)


def read(directory: str, training: Training) -> None:
    """Join all files, insist on the same names and sizes, and copy what this rank owns."""
    whole = _join(directory)
    for buffer in (b for buffers in training.buffers.values() for b in buffers):
        for name, parameter in buffer.parameters.items():
            _check(directory, name, whole.pop(name, None), parameter, frozen=not buffer.trainable)
    if whole:
        raise UsageError(
            f"{', '.join(sorted(whole))} in the checkpoint but not in the model",
            expected="the same parameters on both sides",
            where=directory,
            next_step="load into the model that was saved, or remove these entries knowingly",
        )
    _copy(_join(directory), training)


def _join(directory: str) -> Slices:
    whole: Slices = {}
    for file in sorted(pathlib.Path(directory).glob("rank*.pt")):
        for name, piece in torch.load(file, map_location="cpu", weights_only=True).items():
            entry = whole.setdefault(name, {"step": piece["step"], "tensors": {}})
            for key, tensor in piece["tensors"].items():
                target = entry["tensors"].setdefault(key, tensor.new_full((piece["numel"],), torch.nan))
                target[piece["start"] : piece["start"] + tensor.numel()] = tensor
    return whole


def _check(
    directory: str, name: str, entry: dict[str, Any] | None, parameter: Tensor, *, frozen: bool
) -> None:
    found = None if entry is None else entry["tensors"]["parameter"]
    if found is None:
        problem = f"{name} is not in the checkpoint"
    elif found.numel() != parameter.numel() or found.dtype != parameter.dtype:
        problem = f"{name} has {found.numel()} elements of {found.dtype} in the checkpoint"
    elif bool(found.isnan().any()):
        problem = f"{name} is incomplete or not finite in the checkpoint"
    else:
        return
    raise UsageError(problem, expected=f"{parameter.numel()} elements of {parameter.dtype}", where=directory)


@torch.no_grad()
def _copy(whole: Slices, training: Training) -> None:
    for _, part, parameter, _ in training.own_slices():
        entry, window = whole[part.name], slice(part.start, part.start + part.hi - part.lo)
        parameter.copy_(entry["tensors"]["parameter"][window])
        for key, tensor in training.optimizer.state.get(part.name, {}).items():
            tensor.copy_(entry["tensors"][key][window])
        if part.name in training.optimizer.num_steps:
            training.optimizer.num_steps[part.name] = entry["step"]
    for buffers in training.buffers.values():
        for buffer in buffers:
            training.publish(buffer)
