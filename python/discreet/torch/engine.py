"""PrivacyEngine: private training in the shapes PyTorch users know."""

from __future__ import annotations

import inspect
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from discreet import _core
from discreet.accounting import Interval
from discreet.errors import Error
from discreet.mechanism import _json
from discreet.torch import dataset, selfcheck, state
from discreet.torch.clipper import HALF, Clipper, refuse_half
from discreet.torch.errors import refuse
from discreet.torch.layers import check_layer, modules_of
from discreet.torch.loader import Batches, PrivateLoader, check_loader, count_of, count_of_piece
from discreet.torch.modules import validate
from discreet.torch.optimizer import Optimizers
from discreet.torch.sites import Forward, as_type

SAMPLING = {"poisson": "POISSON_V1", "balls_and_bins": "SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1"}
MOST_EPSILON = 1e300
CLIPPING = {"flat": "per_sample", "per_layer": "per_layer", "per_group": "per_group", "automatic": "per_sample",
            "adaptive": "adaptive"}
# Names of other libraries for what make_private takes.
SYNONYMS = {"model": "module", "optimizers": "optimizer", "dataloader": "data_loader", "train_loader": "data_loader",
            "sigma": "noise_multiplier", "l2_norm_clip": "max_grad_norm", "l2_clip_norm": "max_grad_norm",
            "clip_norm": "max_grad_norm", "delta": "target_delta", "epsilon": "target_epsilon",
            "sample_size": "declared_size", "max_physical_batch_size": "max_physical_batch_size",
            "clipping_mode": "clipping"}
# Keys of the configuration that follow from arguments, by what to give instead. Setting them would change what is accounted,
# but not what the clipper and the loader do.
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
# Opacus' arguments that change nothing here, and those that cannot be had.
IGNORED = {"criterion", "wrap_model", "grad_sample_mode", "batch_first", "poisson_sampling", "noise_generator"}


class Epsilon(float):
    """An upper end that may be used as a number, with all that belongs to it."""

    def __new__(cls, interval: Interval, delta: float, adjacency: str):
        self = super().__new__(cls, interval.upper)
        self.lower, self.upper, self.delta, self.adjacency = interval.lower, interval.upper, delta, adjacency
        return self

    def __repr__(self) -> str:
        return f"Epsilon({float(self)!r}, lower={self.lower!r}, delta={self.delta!r}, adjacency={self.adjacency!r})"


class PrivacyEngine:
    """Makes training private: clipped gradients of PyTorch, noise, sampling and accounting of the core.

    accountant: "pld" (tightest), "rdp", "moments", "gdp" or "f_dp"; "prv" is "pld".
    directory: where the run leaves its trace, checkpoints and key; none: nowhere.
    resume: go on with the run in that directory.
    callbacks: called after every step with a dictionary: "step", "epsilon", "delta" and, under "confidential", what is
        not noised. Only the first three may be shown to anyone.
    insecure_seed: repeatable noise and batches, for tests; the run is not private.
    secure_mode: as Opacus has it, without effect: noise and batches are of a secure generator but for insecure_seed.
    """

    def __init__(self, *, accountant: str = "pld", directory: str | os.PathLike | None = None, resume: bool = False,
                 callbacks: Sequence[Callable[[dict], None]] = (), insecure_seed: int | None = None,
                 secure_mode: bool = True, threads: int | None = None) -> None:
        self._accountant = {"prv": "pld"}.get(accountant, accountant)
        self.directory = None if directory is None else pathlib.Path(directory)
        self.resume, self.callbacks = resume, list(callbacks)
        self.insecure_seed, self.threads = insecure_seed, threads or torch.get_num_threads()
        self._session = None
        self._closed = False

    # ---------------------------------------------------------------- making private

    def make_private(self, *, module: nn.Module | None = None, optimizer=None, data_loader=None,
                     noise_multiplier: float | None = None, max_grad_norm=1.0, target_epsilon: float = 20.0,
                     target_delta: float = 1e-5, epochs: int | None = None, clipping: str = "flat",
                     sampling: str = "poisson", declared_size: int | None = None, loss_reduction: str = "mean",
                     max_physical_batch_size: int | None = None, gradient_accumulation_steps: int = 1,
                     nonfinite: str = "zero", groups: Mapping[str, str] | None = None, self_check: bool = True,
                     example_inputs=None, data_digest: str | bytes | None = None, settings: Mapping | None = None,
                     **others):
        """The same module, optimizer and a loader of private batches, as (module, optimizer, data_loader).

        optimizer: one, or a list of those that share the module.
        noise_multiplier: standard deviation of the noise divided by max_grad_norm; 0 for tests only.
        max_grad_norm: of a record's gradient; for per_layer and per_group the bound over all of them, or one each by name.
        target_epsilon, target_delta: the budget; a step that would exceed it is refused.
        clipping: "flat", "per_layer" (clipped during the backward pass), "per_group" (`groups`: parameter → group),
            "automatic" (Bu et al. 2023: every gradient is scaled to the bound) or "adaptive" (the bound follows the norms,
            privately).
        sampling: "poisson" or "balls_and_bins".
        declared_size: a public number of records. With it one record more or less is hidden (add_remove); without it the
            number of records is taken as public (zero_out). Rates and averages never follow the records that are there.
        max_physical_batch_size: batches beyond it come in pieces, and optimizer.step() acts after the last one.
        gradient_accumulation_steps: the loader gives so many pieces a step, each of its batch size on average.
        nonfinite: "zero" leaves out records whose gradient is not finite; "abort" ends the run at one.
        self_check: compares one small batch with autograd, record by record. example_inputs: the module's arguments for
            it, with at least 3 records; taken from the data set if not given.
        data_digest: SHA-256 of the records (32 bytes or hexadecimal), by which a run with a directory recognises its data
            when it is resumed; computed for tensors in memory up to 128 MB. Without it only their number is compared.
        settings: further keys of the configuration, as discreet.load_config takes them, but none that follow from the
            arguments.
        criterion (not needed): a function of outputs and targets; the self-check then sees whether it couples records.
        """
        given = {key: value for key, value in locals().items() if key not in ("self", "others")}
        arguments = self._named(given, others)
        criterion = others.get("criterion")
        module, optimizer, data_loader = self._make(**arguments, criterion=criterion)
        if "ghost" in others.get("grad_sample_mode", ""):  # Opacus returns the criterion, too
            return module, optimizer, criterion or nn.CrossEntropyLoss(), data_loader
        return module, optimizer, data_loader

    def make_private_with_epsilon(self, *, target_epsilon: float, target_delta: float, epochs: int, **others):
        """As make_private, with the least noise for which `epochs` passes stay within the budget."""
        if "noise_multiplier" in others or "sigma" in others:
            refuse("noise_multiplier follows from target_epsilon; leave it out, or take make_private")
        return self.make_private(target_epsilon=target_epsilon, target_delta=target_delta, epochs=epochs, **others)

    def _named(self, given: dict, others: dict) -> dict:
        defaults = inspect.signature(PrivacyEngine.make_private).parameters
        for key, value in others.items():
            if key in IGNORED:
                _check_ignored(key, value)
            elif key in SYNONYMS:
                meant = SYNONYMS[key]
                if given[meant] is not defaults[meant].default and given[meant] != defaults[meant].default:
                    refuse(f"{key} and {meant} are the same; give one of them")
                given[meant] = value
            else:
                refuse(f"make_private takes no {key}")
        for key in ("module", "optimizer", "data_loader"):
            if given[key] is None:
                refuse(f"{key} is missing")
        if given["noise_multiplier"] is None and given["epochs"] is None:
            refuse("give noise_multiplier, or epochs and target_epsilon from which it follows")
        return given

    def _make(self, *, module, optimizer, data_loader, noise_multiplier, max_grad_norm, target_epsilon, target_delta,
              epochs, clipping, sampling, declared_size, loss_reduction, max_physical_batch_size,
              gradient_accumulation_steps, nonfinite, groups, self_check, example_inputs, data_digest, settings, criterion):
        if self._session is not None:
            refuse("this engine has made a module private already; take one engine for each run")
        if clipping not in CLIPPING:
            refuse(f"clipping is '{clipping}'; give one of {', '.join(CLIPPING)}")
        if sampling not in SAMPLING:
            refuse(f"sampling is '{sampling}'; give one of {', '.join(SAMPLING)}")
        if loss_reduction not in ("mean", "sum"):
            refuse(f"loss_reduction is '{loss_reduction}'; give mean or sum, as the criterion has it")
        max_physical_batch_size = count_of_piece(max_physical_batch_size)
        gradient_accumulation_steps = count_of("gradient_accumulation_steps", gradient_accumulation_steps, "the pieces of a step")
        if declared_size is not None:
            declared_size = count_of("declared_size", declared_size, "as many as there may be records; or leave it out")
        if isinstance(target_epsilon, (int, float)) and MOST_EPSILON < target_epsilon < float("inf"):
            refuse(f"target_epsilon is {target_epsilon!r}; give at most {MOST_EPSILON:g}, or noise_multiplier=0 for a run that is not "
                   "private")
        if isinstance(max_grad_norm, Mapping) and not max_grad_norm:
            refuse(f"max_grad_norm is {max_grad_norm!r}, which bounds nothing; give one number, or one for every layer or group")
        check_alone()
        check_module(module)
        unknown = sorted(map(repr, set(groups or {}) - {name for name, _ in module.named_parameters()}))
        if unknown:
            refuse(f"groups has {', '.join(unknown)}, which {'is no parameter' if len(unknown) == 1 else 'are no parameters'} of "
                   "the module; give names as module.named_parameters() has them")
        if loss_reduction == "mean":
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if tensor.dtype in HALF:
                    refuse_half(f"{name} is {tensor.dtype}")
        check_loader(data_loader)
        dataset.check_places(data_loader.dataset)
        rows = len(data_loader.dataset)
        if rows == 0:
            refuse("the data set has no records; give at least one")
        size = rows if declared_size is None else declared_size
        if rows > size:
            refuse(f"declared_size is {size}, but there are {rows} records; declare at least as many as there may be")
        batch = data_loader.batch_size * gradient_accumulation_steps
        if not 1 <= batch <= size:
            refuse(f"a batch of {batch} records of {size}; take a smaller batch_size")
        self.module, self._automatic = module, clipping == "automatic"
        self._arguments = {"clipping": clipping, "loss_reduction": loss_reduction,
                           "gradient_accumulation_steps": gradient_accumulation_steps}
        privacy = {
            "adjacency": "zero_out" if declared_size is None else "add_remove", "declared_size": size,
            "effective_batch_size": batch, "sampling_mode": SAMPLING[sampling], "accountant": self._accountant,
            "target_epsilon": target_epsilon, "target_delta": target_delta, "nonfinite": nonfinite,
            # An epoch is reserved before its first step: whenever the loop stops inside it, the claim holds.
            "accountant_granularity": "PER_EPOCH",
            "clipping": {"strategy": CLIPPING[clipping]}}
        if isinstance(max_grad_norm, Mapping):
            privacy["clip_norm_map"] = dict(max_grad_norm)
        elif isinstance(max_grad_norm, (list, tuple)):
            refuse("max_grad_norm is a list; give the bounds by name, or one over all layers")
        else:
            privacy["clipping"]["norm"] = float(max_grad_norm)
        if noise_multiplier is None:
            privacy["mode"] = "meet_exactly_at_target_steps"
        else:
            privacy["noise_multiplier"] = float(noise_multiplier)
            if noise_multiplier == 0:
                privacy["debug"] = True
        if epochs is not None:
            privacy["target_steps"] = epochs * -(-size // batch)
        if self.insecure_seed is not None:
            privacy |= {"secure": False, "seed": self.insecure_seed}
        for key, value in (settings or {}).items():
            _set(privacy, key.removeprefix("security.differential_privacy.").split("."), value)
        trained = [p for p in module.parameters() if p.requires_grad]
        if not trained:
            refuse("no parameter of the module is trained (requires_grad)")
        elsewhere = {p.device.type for p in module.parameters()} - {"cpu"}
        if elsewhere:
            refuse(f"the module is on {', '.join(sorted(elsewhere))}; private training is done on the CPU: module.cpu()")
        wide = {p.dtype == torch.float64 for p in trained}
        if len(wide) != 1:
            refuse("some parameters are float64 and some are not; give the module one precision")
        config = {"security": {"differential_privacy": privacy},
                  "run": {"compute_dtype": "float64" if wide.pop() else "float32"}}
        optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        names = {id(p): name for name, p in module.named_parameters()}
        Optimizers.check(optimizers, names)
        tensors = [(name, list(p.shape), "", (groups or {}).get(name, ""), p.requires_grad, "")
                   for name, p in module.named_parameters()]

        # The self-check comes first: nothing is left behind by a module that cannot be served.
        if self_check:
            layout = selfcheck.run(module, data_loader, example_inputs, reduction=loss_reduction, criterion=criterion,
                                   most=max_physical_batch_size)
        else:
            validate(module, strict=True)
        text = _json(config).encode()
        if self.directory is None:
            session = _core.MechanismSession(text, "make_private", [], tensors, None, None, self.threads)
        else:
            session = _core.RunSession(text, "make_private", tensors, self.directory, self.resume, rows,
                                       dataset.digest(data_loader.dataset, data_digest), {"torch": torch.__version__},
                                       self.threads)
        try:
            part_of = session.part_of()
            parts = {name: part_of[i] for i, (name, _, _, _, trains, _) in enumerate(tensors) if trains}
            public = [name for name, part in parts.items() if part == 0xFFFFFFFF]
            if public:
                refuse(f"{', '.join(public)}: public modules receive no private gradient; freeze them instead")
            state.load(self, session, module, optimizers)
            session.noise_multiplier()  # says here if none keeps to the target
            drawn = session.sampling()
            if (drawn["batch_size"], drawn["declared_size"]) != (batch, size):
                refuse(f"the configuration draws {drawn['batch_size']} of {drawn['declared_size']} records, but the loader gives "
                       f"{batch} of {size}; leave the sampling out of settings")
        except BaseException:
            if self.directory is not None:
                session.close()
            raise
        self._clipper = Clipper(module, parts, fused=clipping == "per_layer", bounds=session.clip_bounds,
                                mean=loss_reduction == "mean", batch=float(batch), whole=layout.whole if self_check else ())
        self._clipper.sink, self._clipper.check, self._clipper.failed = self, self._check_forward, self.drop
        if self_check:
            self._clipper.learn(layout.rows, layout.looped)
        self._session, self._rows, self._batch = session, rows, batch
        _share_threads(self.threads)
        self._layout = tensors
        self._frozen = [(name, p) for name, p in module.named_parameters() if not p.requires_grad]
        self._shape = [(name, m._parameters, list(map(id, m._parameters.values())), m._modules,
                        list(map(id, m._modules.values()))) for name, m in module.named_modules()]
        self._dtypes = {name: p.dtype for name, p in module.named_parameters()}
        # _open: a batch was handed out whose step is not done; _left: records of its piece that entered no backward pass.
        self._close_batch()
        self._iterator = 0  # of the loader: the one that was started last
        self.steps_per_epoch = session.sampling()["steps_per_epoch"]
        self.planned_steps = privacy.get("target_steps")
        batches = Batches(lambda: session.sampler(rows), session.t, self.steps_per_epoch,
                          pieces=gradient_accumulation_steps, most=max_physical_batch_size)
        self._loader = PrivateLoader(data_loader, batches, self._begin, self._check_iterator, self._hand_out)
        self._optimizers = Optimizers(self, optimizers)
        return module, optimizer, self._loader

    # ---------------------------------------------------------------- what the parts tell the engine

    def _begin(self) -> int:
        """The loader is iterated anew, by the iterator with the returned number; those before it may give out nothing more.
        A batch that was drawn and not released comes again: nothing of it is known."""
        self._clipper.look = True
        self.drop()
        self._close_batch()
        self._iterator += 1
        return self._iterator

    def _check_iterator(self, iterator: int) -> None:
        if iterator != self._iterator:
            refuse("two iterators of the private loader are in use: both give the batch of the same step, whose records would "
                   "enter it twice. Use only the iterator that you started last, and iterate the loader in one loop")

    def _hand_out(self, iterator: int, t: int, piece: int, records: int, final: bool) -> None:
        """The loader gives out a piece of the batch of step t."""
        self._check_iterator(iterator)
        if t == self._session.t() and piece != self._next_piece:
            refuse(f"the loader gives piece {piece} of the batch of step {t} where piece {self._next_piece} is expected: its "
                   "records would enter the step twice, or not at all; iterate the loader anew")
        if t != self._session.t():
            if self._open and self._final and t == self._session.t() + 1:
                refuse("a batch was drawn whose step was not taken; every batch must end with optimizer.step(), one "
                       "without records too: noise is added then as well. To look at records, iterate the data set")
            refuse(f"the loader gives the batch of step {t}, but {self._session.t()} were taken: it is iterated twice at a "
                   "time, and a batch that came before would come again; iterate it once")
        if self._clipper.unfinished:
            self.drop()
        self._clipper.begin(records)
        # The record that stands for none is counted as any other: the loop must not tell the two apart.
        self._piece = self._left = self._clipper.records
        self._handed, self._final, self._open = self._handed + self._piece, final, True
        self._next_piece = piece + 1

    def _close_batch(self) -> None:
        self._open, self._final = False, True
        self._seen = self._handed = self._piece = self._left = self._next_piece = 0
        # Layers are their own again, for any number of rows; what would train them then is refused.
        self._clipper.active = False

    def take_norms(self, norms: torch.Tensor) -> torch.Tensor:
        """Of the records of one backward pass: what each is multiplied by."""
        records = len(norms)
        if records > self._left:
            given = self._piece
            self.drop()
            refuse(f"a backward pass has {records} records, of which the {given} that the loader gave last have entered one "
                   "already, or are others: a record may enter one backward pass of a step. Add losses before backward(), "
                   "call optimizer.zero_grad() to begin the batch again, and give checkpoint() use_reentrant=False",
                   "INVALID_GRADIENT")
        norms = norms.contiguous()
        scales = torch.zeros_like(norms)
        drawn = 0 if self._clipper.absent else records
        try:
            self._session.take_norms(norms, scales, drawn, 0.01 if self._automatic else None)
        except Error as error:
            self._failed(error)
            raise
        self._seen += records
        self._left -= records
        return scales

    def drop(self) -> None:
        """Forgets the records of the step; nothing of them is released."""
        self._clipper.drop()
        self._session.drop()
        self._seen, self._left = 0, self._piece

    def release(self) -> None:
        """Gives every parameter its noisy gradient."""
        if self._closed:
            refuse("the run was closed; go on with PrivacyEngine(directory=..., resume=True)")
        check_alone()
        self._check_module()
        if not self._open:
            refuse("optimizer.step() without a batch of the loader: there is nothing to release. Iterate the loader that "
                   "make_private returned")
        if self._seen == 0:
            refuse("optimizer.step() without a backward pass: there is nothing to release. Call loss.backward() of the "
                   "batch first")
        if self._seen != self._handed:
            # That a piece is left out may depend on a record in it, which would count for all of them.
            refuse(f"optimizer.step() after backward passes of {self._seen} of the batch's {self._handed} records; call "
                   "loss.backward() for every piece, or iterate the loader anew: it begins this batch again")
        noisy, rounded = self._clipper.buffers, {}
        averages, narrow = [], []
        for name, shape, _, _, trains, _ in self._layout:
            if trains and name not in noisy:
                noisy[name] = torch.zeros(shape, dtype=torch.float64)
            averages.append(noisy[name] if trains else None)
            if self._clipper.dtype == torch.float64:
                continue
            if trains:
                rounded[name] = torch.empty(shape, dtype=torch.float32)
            narrow.append(rounded[name] if trains else None)
        try:
            step = self._session.release_into(averages, narrow, False)
        except Error as error:
            self._failed(error)
            if error.code in ("PRIVACY_BUDGET_EXCEEDED", "ACCOUNTANT_OVERFLOW"):
                refuse(f"{error.sentence}. Stop here, or begin a run with a larger target_epsilon or more noise", error.code,
                       error.op)
            raise
        self._give(noisy, rounded)
        self._clipper.drop()
        self._close_batch()
        state.after_step(self, step)
        for callback in self.callbacks:
            callback({"step": step["t"] + 1, "epsilon": step["after"][1], "delta": self._session.budget()[1],
                      "confidential": step["metrics"]})

    def _give(self, noisy: dict[str, torch.Tensor], rounded: dict[str, torch.Tensor]) -> None:
        """Gives every parameter its gradient. noisy: what the mechanism released, in float64; rounded: the same in float32,
        for a module that is not of float64. Rounding comes after the noise. Tests replace this to see what was released."""
        for name, p in self._clipper.parameters.items():
            p.grad = as_type((rounded or noisy)[name].view_as(p), p.dtype) if p.requires_grad else None

    def _failed(self, error: Error) -> None:
        self.drop()
        if self.directory is not None:
            self._session.fail(error.code, error.op, error.sentence)

    def _check_forward(self) -> None:
        if nn.parallel.DistributedDataParallel._active_ddp_module is not None:
            refuse("the module is called by DistributedDataParallel, which waits for gradients that nobody may see; call the "
                   "module itself, in one process")
        self._check_module()

    def _check_module(self) -> None:
        for name, p in self._frozen:
            if p.requires_grad:
                self.drop()
                refuse(f"{name} is trained now and was not when make_private was called: nothing would clip or noise its "
                       "gradient. Freeze it again, or begin another run with it")
        for name, p in self._clipper.parameters.items():
            if p.dtype != self._dtypes[name]:
                self.drop()
                refuse(f"{name} is of {p.dtype} and was of {self._dtypes[name]} when make_private was called; convert the "
                       "module before it, or begin another run with it")
        for name, own, parameters, below, modules in self._shape:
            if list(map(id, own.values())) != parameters or list(map(id, below.values())) != modules:
                self.drop()
                refuse(f"{name or 'the module'} has other parameters or layers than when make_private was called; begin "
                       "another run with it")

    # ---------------------------------------------------------------- what users ask

    def get_epsilon(self, delta: float | None = None) -> Epsilon:
        """Spent so far: an upper bound that may be used as a number; .lower, .delta and .adjacency belong to it."""
        target, own, adjacency, _ = self._started().budget()
        delta = own if delta is None else delta
        if self._session.not_private():
            return Epsilon(Interval(float("inf"), float("inf")), delta, adjacency)
        return Epsilon(Interval(*self._session.epsilon(delta)), delta, adjacency)

    get_privacy_spent = get_epsilon

    def _epsilon(self, claim: tuple[float, float] | None) -> Epsilon:
        _, delta, adjacency, _ = self._session.budget()
        return Epsilon(Interval(*claim or (float("inf"), float("inf"))), delta, adjacency)

    @property
    def accountant(self):
        """The core's accountant: epsilon, steps, and why a run is not private."""
        return Account(self)

    @property
    def not_private(self) -> list[str]:
        return self._started().not_private()

    def save_checkpoint(self, path: str | os.PathLike | None = None, *, module=None, optimizer=None, **more) -> None:
        """All that the run needs to go on, into its directory; more: objects with state_dict(), as schedulers.
        Confidential. Of a run without directory it cannot be had: its key would have to be written elsewhere."""
        state.save(self, path, more)

    def load_checkpoint(self, path: str | os.PathLike | None = None, *, module=None, optimizer=None, **more) -> dict:
        """Gives `more` their states back. Module and optimizer have theirs since make_private with resume=True."""
        return state.restore_more(self, path, more)

    def finish(self, ended: str | None = None) -> Epsilon:
        """Ends the run and returns its claim, which is also the one that the trace records.

        ended: leave it out, and the run says what it is: "completed" if all planned steps were taken, "budget_reached" if
            the budget does not allow the next one, else "interrupted". An interrupted run claims what its plan would have
            spent, or the budget if none is known: whoever stopped it may have looked at it. "completed" and
            "budget_reached" are rejected for a run that is not.
        A run that is not private claims nothing: infinity.
        """
        return state.finish(self, ended)

    def close(self) -> None:
        """Lets go of the run's directory; steps after it are refused. The run can be resumed."""
        if self._session is not None and self.directory is not None:
            self._closed = True
            self._session.close()

    def _started(self):
        if self._session is None:
            refuse("nothing is private yet; call make_private first")
        return self._session


class Account:
    """What was spent, in the shape of Opacus' accountants."""

    def __init__(self, engine: PrivacyEngine) -> None:
        self._engine = engine

    def get_epsilon(self, delta: float | None = None) -> Epsilon:
        return self._engine.get_epsilon(delta)

    def __len__(self) -> int:
        return self._engine._started().t()

    @property
    def steps(self) -> int:
        return len(self)

    @staticmethod
    def mechanism() -> str:
        return "discreet"


def check_alone() -> None:
    """Refuses several processes: each would draw batches, add noise and account by itself."""
    distributed = torch.distributed
    grouped = distributed.is_available() and distributed.is_initialized()
    if grouped and distributed.get_world_size() > 1:
        refuse(f"the process group has {distributed.get_world_size()} ranks: each would draw batches, add noise and account "
               "for itself alone, and the sum of what they release would be accounted by nobody. Train in one process "
               "(without torchrun, or with --nproc-per-node=1), on more threads by torch.set_num_threads")
    world = os.environ.get("WORLD_SIZE", "1")
    if not grouped and world.strip() not in ("", "1"):
        refuse(f"the environment has WORLD_SIZE={world}, as torchrun sets it, but there is no process group: {world} processes "
               "would train separate models on the same records, each accounted alone. Train in one process (without "
               "torchrun, or with --nproc-per-node=1); if this process is alone, unset WORLD_SIZE")


def check_module(module: nn.Module) -> None:
    """Refuses modules that are not what is trained, or that another run trains."""
    for name, one in module.named_modules():
        if isinstance(one, nn.parallel.DistributedDataParallel):
            refuse(f"{name or 'the module'} is wrapped by DistributedDataParallel, which averages gradients before they are "
                   "clipped; give module.module, in one process")
        if any(kind.__name__ in ("FSDPModule", "FullyShardedDataParallel") for kind in type(one).__mro__):
            refuse(f"{name or 'the module'} is sharded by FSDP, which gathers parameters and reduces gradients behind the "
                   "module; give the module before fully_shard or FullyShardedDataParallel, in one process")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if hasattr(tensor, "device_mesh"):
            refuse(f"{name} is a DTensor, of which each process holds a part; give the module before it is distributed, or "
                   "replace the parameter by its full_tensor()")
    if isinstance(module, torch.jit.ScriptModule):
        refuse("the module is a TorchScript module, into whose layers nothing can look; give the Python module")
    for name, layer in modules_of(module):
        check_layer(name, layer)
    if any(isinstance(vars(m).get("forward"), Forward) for m in module.modules()):
        refuse("the module is that of another private run, or was; give copy.deepcopy(module) and an optimizer of its "
               "parameters")


def _set(privacy: dict, path: list[str], value) -> None:
    """Sets a key of the configuration, or every key of a section, unless arguments say what it is."""
    for end in range(1, len(path) + 1):
        key = ".".join(path[:end])
        if key in FROM_ARGUMENTS:
            refuse(f"settings has {key}, which follows from the arguments; give {FROM_ARGUMENTS[key]} instead")
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
        refuse(f"settings has {'.'.join(path)}={value!r}, which is a section of the configuration; give its keys")
    section[path[-1]] = value


def _check_ignored(key: str, value) -> None:
    if key == "poisson_sampling" and not value:
        refuse("poisson_sampling=False is not what the accountant bounds; take sampling='balls_and_bins' for batches "
               "of which every record is in exactly one an epoch")
    if key == "noise_generator" and value is not None:
        refuse("noise_generator is not taken: noise is of the core's generator; for tests give PrivacyEngine(insecure_seed=...)")
    if key == "batch_first" and not value:
        refuse("batch_first=False is not served; give every layer the records in the first dimension")
    if key == "grad_sample_mode" and value not in ("hooks", "ghost", "functorch", "ew"):
        refuse(f"grad_sample_mode is '{value}'; leave it out")
    if key == "criterion" and value is not None and getattr(value, "reduction", "mean") == "none":
        refuse("the criterion does not reduce; give loss_reduction for how you reduce it")


def _share_threads(threads: int) -> None:
    """Lets the core work on PyTorch's OpenMP threads: those wait actively, and others would wait for them."""
    try:
        mapped = pathlib.Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    found = {line.split()[-1] for line in mapped if "libgomp" in line}
    for path in sorted(found, key=lambda path: "torch" not in path)[:1]:
        _core.use_openmp(path, threads)
