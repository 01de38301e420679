"""The run directory of PyTorch training: what a run needs to go on, and what it leaves."""

from __future__ import annotations

import copy
import io
import json
import pathlib
import warnings

import torch

from discreet.torch.errors import refuse

CHECKPOINT_EVERY = 100


def _pack(engine, more: dict) -> bytes:
    out = io.BytesIO()
    torch.save({"module": engine.module.state_dict(),
                "optimizers": [o.state_dict() for o in engine._optimizers.optimizers],
                "kinds": [type(o).__name__ for o in engine._optimizers.optimizers],
                "arguments": engine._arguments,
                "random": torch.get_rng_state(),
                "more": {name: thing.state_dict() if hasattr(thing, "state_dict") else thing
                         for name, thing in more.items()}}, out)
    return out.getvalue()


def load(engine, session, module, optimizers: list) -> None:
    """Gives module, optimizers and generator the state of the run that is resumed."""
    engine._more, engine._restored = {}, {}
    saved = session.saved if engine.directory is not None else None
    if not saved:
        return
    state = torch.load(io.BytesIO(saved), weights_only=True)
    begun, given = state.get("kinds"), [type(o).__name__ for o in optimizers]
    if begun is not None and begun != given:
        refuse(f"the run was begun with {', '.join(begun)} and is resumed with {', '.join(given)}; give the same optimizers, or "
               "begin another run")
    # What the configuration does not have. Earlier versions did not keep it.
    for name, was in state.get("arguments", {}).items():
        now = engine._arguments.get(name, was)
        if now != was:
            refuse(f"the run was begun with {name}={was!r} and is resumed with {name}={now!r}; give the same, or begin another run")
    before = [copy.deepcopy(thing.state_dict()) for thing in (module, *optimizers)]
    try:
        for thing, own in zip((module, *optimizers), (state["module"], *state["optimizers"])):
            thing.load_state_dict(own)
    except (RuntimeError, ValueError, KeyError) as error:
        for thing, own in zip((module, *optimizers), before):
            thing.load_state_dict(own)
        refuse(f"the checkpoint is of another module or optimizer ({error}); give the same, or begin another run")
    torch.set_rng_state(state["random"])
    engine._restored = state["more"]


def save(engine, path, more: dict) -> None:
    engine._started()
    if engine.directory is None or (path is not None and pathlib.Path(path).resolve() != engine.directory.resolve()):
        refuse("a checkpoint belongs to the directory of its run, beside its key and trace: give "
               "PrivacyEngine(directory=...), and no other path here")
    if engine._open and engine._seen > 0:
        refuse("a step is not finished: its sums are not noised; save after optimizer.step()")
    engine._more = more
    engine._session.write_checkpoint(_pack(engine, more))


def restore_more(engine, path, more: dict) -> dict:
    engine._started()
    if not engine.resume:
        refuse("this run was not resumed: give PrivacyEngine(directory=..., resume=True)")
    for name, thing in more.items():
        if name not in engine._restored:
            refuse(f"the checkpoint has no {name}")
        if hasattr(thing, "load_state_dict"):
            thing.load_state_dict(engine._restored[name])
    engine._more = more
    return engine._restored


def after_step(engine, step: dict) -> None:
    if engine.directory is None:
        return
    engine._unsaved = (step["t"] + 1) % CHECKPOINT_EVERY == 0


def checkpoint_if_due(engine) -> None:
    """After the optimizers have used the release."""
    if engine.directory is not None and getattr(engine, "_unsaved", False):
        engine._unsaved = False
        engine._session.write_checkpoint(_pack(engine, engine._more))


def finish(engine, ended: str | None):
    session = engine._started()
    if engine._open and engine._seen > 0:
        refuse("a step is not finished; finish after optimizer.step()")
    claim = session.claim(ended)
    if engine.directory is not None:
        engine._session.write_checkpoint(_pack(engine, engine._more))
        engine._session.write_model(_safetensors(engine.module.state_dict(), engine._session.about_model()))
        end = session.end(ended)
        claim = end["epsilon"]
        if end["zeroed"]:
            warnings.warn(f"{end['zeroed']} (this depends on the records: keep it confidential)", stacklevel=3)
    return engine._epsilon(None if session.not_private() else claim)


def _safetensors(tensors: dict[str, torch.Tensor], about: dict[str, str]) -> bytes:
    kinds = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16",
             torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}
    header, body, at = {"__metadata__": about}, [], 0
    for name, tensor in tensors.items():
        data = tensor.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        body.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(body)
