"""The run directory of PyTorch training: the state for continuing a run, and its results."""

from __future__ import annotations

import copy
import io
import json
import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from discreet.errors import Error
from discreet.torch.errors import refuse

if TYPE_CHECKING:
    from discreet.torch.engine import Epsilon, PrivacyEngine

CHECKPOINT_EVERY = 100


def _pack(engine: PrivacyEngine, more: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    torch.save({"module": engine.module.state_dict(),
                "optimizers": [o.state_dict() for o in engine._optimizers.optimizers],
                "kinds": [type(o).__name__ for o in engine._optimizers.optimizers],
                "arguments": engine._arguments,
                "random": torch.get_rng_state(),
                "more": {name: thing.state_dict() if hasattr(thing, "state_dict") else thing
                         for name, thing in more.items()}}, out)
    return out.getvalue()


def load(engine: PrivacyEngine, session: Any, module: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Restores module, optimizers and generator from the resumed run."""
    engine._more, engine._restored = {}, {}
    saved = session.saved if engine.directory is not None else None
    if not saved:
        return
    state = torch.load(io.BytesIO(saved), weights_only=True)
    kinds, given = state.get("kinds"), [type(o).__name__ for o in optimizers]
    if kinds is not None and kinds != given:
        refuse(f"the run started with {', '.join(kinds)}, but is resumed with {', '.join(given)}; use the same optimizers, "
               "or start another run")
    # Arguments that are not in the configuration; earlier versions did not save them.
    for name, was in state.get("arguments", {}).items():
        now = engine._arguments.get(name, was)
        if now != was:
            refuse(f"the run started with {name}={was!r}, but is resumed with {name}={now!r}; use the same, or start another "
                   "run")
    things: list[Any] = [module, *optimizers]
    before = [copy.deepcopy(thing.state_dict()) for thing in things]
    try:
        for thing, own in zip(things, (state["module"], *state["optimizers"])):
            thing.load_state_dict(own)
    except Error:
        raise
    except (RuntimeError, ValueError, KeyError) as error:
        for thing, own in zip(things, before):
            thing.load_state_dict(own)
        refuse(f"the checkpoint belongs to another module or optimizer ({error}); use the same, or start another run")
    torch.set_rng_state(state["random"])
    engine._restored = state["more"]


def save(engine: PrivacyEngine, path: str | os.PathLike[str] | None, more: Mapping[str, Any]) -> None:
    session = engine._started()
    if engine.directory is None or (path is not None and pathlib.Path(path).resolve() != engine.directory.resolve()):
        refuse("a checkpoint belongs to the directory of its run, with its key and trace: use PrivacyEngine(directory=...), "
               "and pass no other path here")
    if engine._batch.is_started:
        refuse("a step is not finished, and its sums have no noise; save after optimizer.step()")
    engine._more = more
    session.write_checkpoint(_pack(engine, more))


def restore_more(engine: PrivacyEngine, path: str | os.PathLike[str] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    engine._started()
    if not engine.resume:
        refuse("this run was not resumed: use PrivacyEngine(directory=..., resume=True)")
    for name, thing in more.items():
        if name not in engine._restored:
            refuse(f"the checkpoint does not contain {name}; it contains {', '.join(engine._restored) or 'nothing else'}")
        if hasattr(thing, "load_state_dict"):
            thing.load_state_dict(engine._restored[name])
    engine._more = more
    return engine._restored


def after_step(engine: PrivacyEngine, step: Mapping[str, Any]) -> None:
    if engine.directory is None:
        return
    engine._unsaved = (step["t"] + 1) % CHECKPOINT_EVERY == 0


def checkpoint_if_due(engine: PrivacyEngine) -> None:
    """Call this after the optimizers have used the release."""
    if engine.directory is not None and getattr(engine, "_unsaved", False):
        engine._unsaved = False
        engine._started().write_checkpoint(_pack(engine, engine._more))


def finish(engine: PrivacyEngine, ended: str | None) -> Epsilon:
    session = engine._started()
    if engine._batch.is_started:
        refuse("a step is not finished; call finish after optimizer.step()")
    claim = session.claim(ended)
    if engine.directory is not None:
        session.write_checkpoint(_pack(engine, engine._more))
        session.write_model(_safetensors(engine.module.state_dict(), session.about_model()))
        end = session.end(ended)
        claim = end["epsilon"]
        if end["zeroed"]:
            warnings.warn(f"{end['zeroed']} (this depends on the records: keep it confidential)", stacklevel=3)
    return engine._epsilon(None if session.not_private() else claim)


def _safetensors(tensors: dict[str, torch.Tensor], about: dict[str, str]) -> bytes:
    kinds = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16",
             torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}
    header: dict[str, Any] = {"__metadata__": about}
    body: list[bytes] = []
    at = 0
    for name, tensor in tensors.items():
        data = tensor.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        body.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(body)
