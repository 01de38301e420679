"""The arguments of make_private: their names in other libraries, their checks, and the configuration that follows from them."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from discreet import _core
from discreet.mechanism import _json
from discreet.torch import dataset
from discreet.torch.clipper import HALF, refuse_half
from discreet.torch.errors import refuse
from discreet.torch.loader import check_loader, count_of, count_of_piece

SAMPLING = {"poisson": "POISSON_V1", "balls_and_bins": "SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1"}
MOST_EPSILON = 1e300
CLIPPING = {"flat": "per_sample", "per_layer": "per_layer", "per_group": "per_group", "automatic": "per_sample",
            "adaptive": "adaptive"}
# Names that other libraries use for arguments of make_private.
SYNONYMS = {"model": "module", "optimizers": "optimizer", "dataloader": "data_loader", "train_loader": "data_loader",
            "sigma": "noise_multiplier", "l2_norm_clip": "max_grad_norm", "l2_clip_norm": "max_grad_norm",
            "clip_norm": "max_grad_norm", "delta": "target_delta", "epsilon": "target_epsilon",
            "sample_size": "declared_size", "max_physical_batch_size": "max_physical_batch_size",
            "clipping_mode": "clipping"}
# Keys of the configuration that follow from arguments, with the argument to use instead. Setting them would change what is
# accounted for, but not what the clipper and the loader do.
FROM_ARGUMENTS = {
    "adjacency": "declared_size", "declared_size": "declared_size",
    "effective_batch_size": "the DataLoader's batch_size", "sampling_rate": "the DataLoader's batch_size",
    "truncated_batch": "the DataLoader's batch_size", "gradient_accumulation_steps": "gradient_accumulation_steps",
    "accumulation_context": "gradient_accumulation_steps", "sampling_mode": "sampling", "subsampling": "sampling",
    "target_epsilon": "target_epsilon", "target_delta": "target_delta", "noise_multiplier": "noise_multiplier",
    "debug": "noise_multiplier=0", "clipping.strategy": "clipping", "clipping.ghost": "clipping",
    "clipping.norm": "max_grad_norm", "clip_norm_map": "max_grad_norm", "nonfinite": "nonfinite",
    "accountant": "PrivacyEngine(accountant=...)", "secure": "PrivacyEngine(insecure_seed=...)",
    "seed": "PrivacyEngine(insecure_seed=...)"}
# Arguments of Opacus that have no effect here, or that are rejected unless they have the supported value.
IGNORED = {"criterion", "wrap_model", "grad_sample_mode", "batch_first", "poisson_sampling", "noise_generator"}


@dataclasses.dataclass
class Arguments:
    """The values of make_private's arguments."""

    module: nn.Module
    optimizer: Any
    data_loader: DataLoader[Any]
    noise_multiplier: float | None
    max_grad_norm: Any
    target_epsilon: float
    target_delta: float
    epochs: int | None
    clipping: str | None
    sampling: str
    declared_size: int | None
    loss_reduction: str
    max_physical_batch_size: int | None
    gradient_accumulation_steps: int
    nonfinite: str
    groups: Mapping[str, str] | None
    self_check: bool
    example_inputs: Any
    data_digest: str | bytes | None
    settings: Mapping[str, Any] | None
    criterion: Callable[..., Any] | None

    @classmethod
    def named(cls, function: Callable[..., Any], given: dict[str, Any], others: Mapping[str, Any]) -> Arguments:
        """given: arguments under the names of `function`; others: arguments under names of other libraries."""
        defaults = inspect.signature(function).parameters
        for key, value in others.items():
            if key in IGNORED:
                _check_ignored(key, value)
            elif key in SYNONYMS:
                meant = SYNONYMS[key]
                if given[meant] is not defaults[meant].default and given[meant] != defaults[meant].default:
                    refuse(f"{key} and {meant} are two names of one argument; pass only one of them")
                given[meant] = value
            else:
                near = difflib.get_close_matches(key, [*defaults, *SYNONYMS], n=1)
                refuse(f"make_private has no argument {key}; "
                       + (f"did you mean {near[0]}?" if near else "see help(PrivacyEngine.make_private)"))
        for key in ("module", "optimizer", "data_loader"):
            if given[key] is None:
                refuse(f"{key} is missing; pass it to make_private")
        return cls(**given, criterion=others.get("criterion"))

    # ---------------------------------------------------------------- checks

    def check_values(self) -> None:
        """Checks ranges that do not depend on the module or the data; converts counts to int."""
        if self.clipping is not None and self.clipping not in CLIPPING:
            refuse(f"clipping is '{self.clipping}', but must be one of {', '.join(CLIPPING)}")
        if self.sampling not in SAMPLING:
            refuse(f"sampling is '{self.sampling}', but must be one of {', '.join(SAMPLING)}")
        if self.loss_reduction not in ("mean", "sum"):
            refuse(f"loss_reduction is '{self.loss_reduction}', but must be mean or sum, as in the criterion")
        self.max_physical_batch_size = count_of_piece(self.max_physical_batch_size)
        self.gradient_accumulation_steps = count_of("gradient_accumulation_steps", self.gradient_accumulation_steps,
                                               "the number of pieces per step")
        if self.declared_size is not None:
            self.declared_size = count_of("declared_size", self.declared_size, "the maximum number of records, or None")
        if isinstance(self.target_epsilon, (int, float)) and MOST_EPSILON < self.target_epsilon < float("inf"):
            refuse(f"target_epsilon is {self.target_epsilon!r}, but must be at most {MOST_EPSILON:g}; for a run that is not "
                   "private, use noise_multiplier=0")
        if isinstance(self.max_grad_norm, Mapping) and not self.max_grad_norm:
            refuse(f"max_grad_norm is {self.max_grad_norm!r}, which bounds nothing; pass one number, or one for every layer or "
                   "group")

    def check_module_and_data(self) -> None:
        """Checks the arguments against the module and the data set."""
        unknown = sorted(map(repr, set(self.groups or {}) - {name for name, _ in self.module.named_parameters()}))
        if unknown:
            refuse(f"groups has {', '.join(unknown)}, which "
                   f"{'is not a parameter' if len(unknown) == 1 else 'are not parameters'} of the module; use the names of "
                   "module.named_parameters()")
        if self.loss_reduction == "mean":
            for name, tensor in (*self.module.named_parameters(), *self.module.named_buffers()):
                if tensor.dtype in HALF:
                    refuse_half(f"{name} is {tensor.dtype}")
        check_loader(self.data_loader)
        dataset.check_places(self.data_loader.dataset)
        if self.rows == 0:
            refuse("the data set has no records; it must have at least one")
        if self.rows > self.size:
            refuse(f"declared_size is {self.size}, but the data set has {self.rows} records; declare a number that it never "
                   "exceeds")
        if not 1 <= self.batch <= self.size:
            refuse(f"a step uses {self.batch} records on average, but the data set has only {self.size}; use a smaller "
                   "batch_size")

    # ---------------------------------------------------------------- derived values

    @property
    def rows(self) -> int:
        return len(self.data_loader.dataset)  # type: ignore[arg-type]  # check_loader has seen that it has a length

    @property
    def size(self) -> int:
        """The public number of records."""
        return self.rows if self.declared_size is None else self.declared_size

    @property
    def batch(self) -> int:
        """The average number of records of a step."""
        assert self.data_loader.batch_size is not None  # check_loader
        return self.data_loader.batch_size * self.gradient_accumulation_steps

    @property
    def planned_steps(self) -> int | None:
        return None if self.epochs is None else self.epochs * -(-self.size // self.batch)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return list(self.optimizer) if isinstance(self.optimizer, (list, tuple)) else [self.optimizer]

    def tensors(self) -> list[tuple[str, list[int], str, str, bool, str]]:
        """The layout in the core's form: name, shape, layer, group, trainable, adapter."""
        return [(name, list(p.shape), "", (self.groups or {}).get(name, ""), p.requires_grad, "")
                for name, p in self.module.named_parameters()]

    def configuration(self, accountant: str, insecure_seed: int | None) -> dict[str, Any]:
        """The configuration in the form of discreet.load_config."""
        privacy: dict[str, Any] = {
            "adjacency": "zero_out" if self.declared_size is None else "add_remove", "declared_size": self.size,
            "effective_batch_size": self.batch, "sampling_mode": SAMPLING[self.sampling], "accountant": accountant,
            "target_epsilon": self.target_epsilon, "target_delta": self.target_delta, "nonfinite": self.nonfinite,
            # An epoch is reserved before its first step, so the claim holds wherever the loop stops inside it.
            "accountant_granularity": "PER_EPOCH", "clipping": {}}
        # What no argument says is left to the preset that `settings` may extend, and to the defaults of the keys.
        if self.clipping is not None:
            privacy["clipping"]["strategy"] = CLIPPING[self.clipping]
        if isinstance(self.max_grad_norm, Mapping):
            privacy["clip_norm_map"] = dict(self.max_grad_norm)
            privacy["clipping"]["norm"] = 1.0
        elif isinstance(self.max_grad_norm, (list, tuple)):
            refuse("max_grad_norm is a list; pass a dictionary of bounds by name, or one bound over all layers")
        elif self.max_grad_norm is not None:
            privacy["clipping"]["norm"] = float(self.max_grad_norm)
        if self.noise_multiplier is not None:
            privacy["noise_multiplier"] = float(self.noise_multiplier)
            if self.noise_multiplier == 0:
                privacy["debug"] = True
        if self.epochs is not None:
            privacy["target_steps"] = self.planned_steps
        if insecure_seed is not None:
            privacy |= {"secure": False, "seed": insecure_seed}
        for key, value in (self.settings or {}).items():
            _set(privacy, key.removeprefix("security.differential_privacy.").split("."), value)
        config = {"security": {"differential_privacy": privacy}, "run": {"compute_dtype": self.compute_dtype()}}
        self._complete(privacy, {key.removeprefix("security.differential_privacy.") for key in
                                 _core.given_keys(_json(config).encode(), "make_private", [])})
        return config

    def _complete(self, privacy: dict[str, Any], given: set[str]) -> None:
        """Adds what follows from other keys. given: the keys that arguments, settings or the preset set."""
        preset = privacy.get("extends")
        if self.clipping in ("flat", "automatic") and self.max_grad_norm is None and "clipping.norm" in given:
            refuse(f"clipping='{self.clipping}' has a fixed bound, but extends '{preset}' sets clipping.norm adaptive; pass "
                   "max_grad_norm to fix the bound, or clipping='adaptive'")
        if "noise_multiplier" in given:
            return
        if self.epochs is None:
            refuse("noise_multiplier is missing; pass it, or pass epochs and target_epsilon, from which it follows")
        if "mode" not in given:
            privacy["mode"] = "meet_exactly_at_target_steps"

    def compute_dtype(self) -> str:
        """The precision of the module's gradients; rejects modules that cannot be trained here."""
        trained = [p for p in self.module.parameters() if p.requires_grad]
        if not trained:
            refuse("no parameter of the module has requires_grad; there is nothing to train")
        elsewhere = {p.device.type for p in self.module.parameters()} - {"cpu"}
        if elsewhere:
            refuse(f"the module is on {', '.join(sorted(elsewhere))}, but private training runs on the CPU; call module.cpu()")
        wide = {p.dtype == torch.float64 for p in trained}
        if len(wide) != 1:
            refuse("some parameters are float64 and some are not; convert the module to one precision")
        return "float64" if wide.pop() else "float32"


def _set(privacy: dict[str, Any], path: list[str], value: Any) -> None:
    """Sets a key of the configuration, or every key of a section. Rejects keys that follow from arguments."""
    for end in range(1, len(path) + 1):
        key = ".".join(path[:end])
        if key in FROM_ARGUMENTS:
            refuse(f"settings has {key}, which follows from the arguments; use {FROM_ARGUMENTS[key]} instead")
    if isinstance(value, Mapping):
        for name, one in value.items():
            _set(privacy, [*path, str(name)], one)
        return
    section = privacy
    for name in path[:-1]:
        if not isinstance(section.setdefault(name, {}), dict):
            refuse(f"settings has {'.'.join(path)}, but {name} is not a section")
        section = section[name]
    if isinstance(section.get(path[-1]), dict):
        refuse(f"settings has {'.'.join(path)}={value!r}, but that is a section of the configuration; set its keys")
    section[path[-1]] = value


def _check_ignored(key: str, value: Any) -> None:
    if key == "poisson_sampling" and not value:
        refuse("poisson_sampling=False has no privacy accounting; use sampling='balls_and_bins' for batches in which every "
               "record occurs exactly once per epoch")
    if key == "noise_generator" and value is not None:
        refuse("noise_generator is not supported: the core's generator draws the noise; for repeatable tests use "
               "PrivacyEngine(insecure_seed=...)")
    if key == "batch_first" and not value:
        refuse("batch_first=False is not supported; every layer must have the records in the first dimension")
    if key == "grad_sample_mode" and value not in ("hooks", "ghost", "functorch", "ew"):
        refuse(f"grad_sample_mode is '{value}', which is not supported; omit it")
    if key == "criterion" and value is not None and getattr(value, "reduction", "mean") == "none":
        refuse("the criterion has reduction='none'; set loss_reduction to how you reduce it, and omit criterion")
