"""Rejects unsupported environments and modules: several processes; wrapped, sharded or scripted modules."""

from __future__ import annotations

import os

import torch
from torch import nn

from discreet.torch.errors import refuse
from discreet.torch.layers import check_layer, modules_of
from discreet.torch.sites import Forward


def check_alone() -> None:
    """Rejects several processes: each would draw batches, add noise and account independently."""
    distributed = torch.distributed
    grouped = distributed.is_available() and distributed.is_initialized()
    if grouped and distributed.get_world_size() > 1:
        refuse(f"the process group has {distributed.get_world_size()} ranks: each would draw batches, add noise and account "
               "independently, and their combined releases would not be accounted. Train in one process (without torchrun, "
               "or with --nproc-per-node=1); use more threads with torch.set_num_threads")
    world = os.environ.get("WORLD_SIZE", "1")
    if not grouped and world.strip() not in ("", "1"):
        refuse(f"the environment has WORLD_SIZE={world}, which torchrun sets, but there is no process group: {world} processes "
               "would train separate models on the same records and account for them separately. Train in one process "
               "(without torchrun, or with --nproc-per-node=1); if there is only one process, unset WORLD_SIZE")


def check_module(module: nn.Module) -> None:
    """Rejects modules that wrap the trained module, and modules of another private run."""
    for name, one in module.named_modules():
        if isinstance(one, nn.parallel.DistributedDataParallel):
            refuse(f"{name or 'the module'} is wrapped by DistributedDataParallel, which averages gradients before they are "
                   "clipped; pass module.module, in one process")
        if any(kind.__name__ in ("FSDPModule", "FullyShardedDataParallel") for kind in type(one).__mro__):
            refuse(f"{name or 'the module'} is sharded by FSDP, which gathers parameters and reduces gradients outside the "
                   "module; pass the module before fully_shard or FullyShardedDataParallel, in one process")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if hasattr(tensor, "device_mesh"):
            refuse(f"{name} is a DTensor, of which each process holds a part; pass the module before it is distributed, or "
                   "replace the parameter by its full_tensor()")
    if isinstance(module, torch.jit.ScriptModule):
        refuse("the module is a TorchScript module, whose layers cannot be inspected; pass the Python module")
    for name, layer in modules_of(module):
        check_layer(name, layer)
    if any(isinstance(vars(m).get("forward"), Forward) for m in module.modules()):
        refuse("the module belongs to another private run, or did; pass copy.deepcopy(module) and an optimizer of its "
               "parameters")
