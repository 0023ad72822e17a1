"""Saving and loading with torch.distributed.checkpoint, and with ZeroRedundancyOptimizer's own consolidation."""

from __future__ import annotations

import pathlib
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse, async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
from torch.distributed.optim import ZeroRedundancyOptimizer


class Pending(Protocol):
    """What async_save returns."""

    def result(self) -> object:
        """Wait."""


def save(directory: str, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Sharded state by DCP; ZeRO-1 state is consolidated on rank 0 first, as its documentation says."""
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        optimizer.consolidate_state_dict(to=0)
        if dist.get_rank() == 0:
            folder = pathlib.Path(directory)
            folder.mkdir(parents=True, exist_ok=True)
            whole = {"model": module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(whole, folder / "consolidated.pt")
        dist.barrier()
        return
    dcp_save(_state(module, optimizer), checkpoint_id=directory)


def save_async(directory: str, module: nn.Module, optimizer: torch.optim.Optimizer) -> Pending:
    """Returns once the state is staged; the writer talks in a group of its own."""
    state, group = _state(module, optimizer), dist.new_group()
    response = async_save(state, checkpoint_id=directory, process_group=group)
    return response.upload_completion if isinstance(response, AsyncSaveResponse) else response


def load(directory: str, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Every rank reads what it needs."""
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        whole = torch.load(pathlib.Path(directory) / "consolidated.pt", map_location="cpu", weights_only=True)
        module.load_state_dict(whole["model"])
        optimizer.load_state_dict(whole["optimizer"])
        return
    state = _state(module, optimizer)
    dcp_load(state, checkpoint_id=directory)
    set_state_dict(module, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def _state(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    model, state = get_state_dict(module, optimizer)
    return {"model": model, "optimizer": state}
