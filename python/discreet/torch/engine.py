"""PrivacyEngine: private training with an ordinary PyTorch training loop."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from discreet import _core
from discreet.accounting import Interval
from discreet.errors import Error
from discreet.mechanism import _json
from discreet.torch import dataset, state
from discreet.torch.arguments import Arguments
from discreet.torch.batch import Batch
from discreet.torch.clipper import Clipper
from discreet.torch.errors import refuse
from discreet.torch.guards import check_alone, check_module
from discreet.torch.loader import Batches, PrivateLoader
from discreet.torch.modules import validate
from discreet.torch.optimizer import Optimizers
from discreet.torch.secret_draws import SecretDraws
from discreet.torch.selfcheck import check as selfcheck
from discreet.torch.sites import as_type


class Epsilon(float):
    """An upper bound on epsilon, usable as a number, with its lower bound, its delta and its neighbouring relation."""

    lower: float
    upper: float
    delta: float
    adjacency: str

    def __new__(cls, interval: Interval, delta: float, adjacency: str) -> Epsilon:
        self = super().__new__(cls, interval.upper)
        self.lower, self.upper, self.delta, self.adjacency = interval.lower, interval.upper, delta, adjacency
        return self

    def __repr__(self) -> str:
        return f"Epsilon({float(self)!r}, lower={self.lower!r}, delta={self.delta!r}, adjacency={self.adjacency!r})"


class PrivacyEngine:
    """Makes training private: PyTorch computes the gradients, which are clipped per record; the core draws batches and noise
    and accounts for the privacy loss.

    accountant: "pld" (tightest), "rdp", "moments", "gdp" or "f_dp"; "prv" means "pld".
    directory: where the run writes its trace, checkpoints and key; None writes nothing.
    resume: continue the run in that directory.
    callbacks: called after every step with a dictionary of "step", "epsilon", "delta" and, under "confidential", metrics
        without noise. Only the first three may be published.
    insecure_seed: makes noise and batches repeatable, for tests; the run is then not private.
    secure_mode: accepted for compatibility with Opacus, without effect: noise and batches always come from a secure generator,
        unless insecure_seed is set.
    threads: number of threads of the core; None uses as many as PyTorch.
    """

    module: nn.Module
    # Set by state.load.
    _more: Mapping[str, Any]
    _restored: dict[str, Any]
    _unsaved: bool

    def __init__(self, *, accountant: str = "pld", directory: str | os.PathLike[str] | None = None, resume: bool = False,
                 callbacks: Sequence[Callable[[dict[str, Any]], None]] = (), insecure_seed: int | None = None,
                 secure_mode: bool = True, threads: int | None = None) -> None:
        self._accountant = {"prv": "pld"}.get(accountant, accountant)
        self.directory = None if directory is None else pathlib.Path(directory)
        self.resume, self.callbacks = resume, list(callbacks)
        self.insecure_seed, self.threads = insecure_seed, threads or torch.get_num_threads()
        self._session: Any = None  # of the core: a MechanismSession or RunSession
        self._closed = False

    # ---------------------------------------------------------------- making private

    def make_private(self, *, module: nn.Module | None = None,
                     optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
                     data_loader: DataLoader[Any] | None = None, noise_multiplier: float | None = None,
                     max_grad_norm: float | Mapping[str, float] | None = None, target_epsilon: float = 20.0,
                     target_delta: float = 1e-5, epochs: int | None = None, clipping: str | None = None,
                     sampling: str = "poisson", declared_size: int | None = None, loss_reduction: str = "mean",
                     max_physical_batch_size: int | None = None, gradient_accumulation_steps: int = 1,
                     nonfinite: str = "zero", groups: Mapping[str, str] | None = None, self_check: bool = True,
                     example_inputs: Any = None, data_digest: str | bytes | None = None,
                     settings: Mapping[str, Any] | None = None, **others: Any) -> Any:
        """Returns (module, optimizer, data_loader): the same module and optimizer, and a loader of private batches.

        optimizer: one optimizer, or a list of optimizers that share the module.
        noise_multiplier: standard deviation of the noise divided by max_grad_norm; 0 for tests only.
        max_grad_norm: bound on the L2 norm of a record's gradient, by default 1. For per_layer and per_group it is the bound
            over all parts, or a dictionary with one bound for each part by name.
        target_epsilon, target_delta: the budget; a step that would exceed it is rejected.
        clipping: "flat" (the default), "per_layer" (clipped during the backward pass), "per_group" (`groups`: parameter →
            group), "automatic" (Bu et al. 2023: every gradient is scaled to the bound) or "adaptive" (the bound follows the
            norms, privately).
        sampling: "poisson" or "balls_and_bins".
        declared_size: a public number of records, at least as large as the data set. With it, the presence of a record is
            protected (add_remove). Without it, the size of the data set is public and the content of a record is protected
            (zero_out). Sampling rates and averages use this number, never the records that are present.
        max_physical_batch_size: larger batches come in pieces, and optimizer.step() acts after the last piece.
        gradient_accumulation_steps: number of pieces that the loader returns per step; each has the loader's batch size on
            average.
        nonfinite: "zero" leaves out records whose gradient is not finite; "abort" ends the run at the first such record.
        self_check: compares one small batch with autograd, record by record.
        example_inputs: the module's arguments for the self-check, with at least 3 records; by default, synthetic records with
            the data set's shapes and types.
        data_digest: SHA-256 of the records (32 bytes or hexadecimal). A run with a directory compares it when it is resumed.
            It is computed by default for tensors in memory of up to 128 MB; without it, only the number of records is compared.
        settings: further keys of the configuration, as in discreet.load_config, except those that follow from the arguments.
            With {"extends": NAME}, the preset of that name gives the clipping, the bound and the noise that no argument gives;
            `notes` says which of its keys act.
        criterion (optional): the loss as a function of outputs and targets; the self-check then checks whether it couples
            records.
        """
        given = {key: value for key, value in locals().items() if key not in ("self", "others")}
        arguments = Arguments.named(PrivacyEngine.make_private, given, others)
        loader = self._make(arguments)
        if "ghost" in others.get("grad_sample_mode", ""):  # Opacus returns the criterion too
            return arguments.module, arguments.optimizer, arguments.criterion or nn.CrossEntropyLoss(), loader
        return arguments.module, arguments.optimizer, loader

    def make_private_with_epsilon(self, *, target_epsilon: float, target_delta: float, epochs: int, **others: Any) -> Any:
        """Same as make_private, with the least noise for which `epochs` passes over the data stay within the budget."""
        if "noise_multiplier" in others or "sigma" in others:
            refuse("noise_multiplier follows from target_epsilon; omit it, or use make_private")
        # Also where a preset has noise or a mode of its own.
        others["settings"] = {"mode": "meet_exactly_at_target_steps", **(others.get("settings") or {})}
        return self.make_private(target_epsilon=target_epsilon, target_delta=target_delta, epochs=epochs, **others)

    def _make(self, given: Arguments) -> PrivateLoader:
        if self._session is not None:
            refuse("this engine has already made a module private; use one engine for each run")
        given.check_values()
        check_alone()
        check_module(given.module)
        given.check_module_and_data()
        config = given.configuration(self._accountant, self.insecure_seed)
        Optimizers.check(given.optimizers, {id(p): name for name, p in given.module.named_parameters()})
        # The self-check comes first, so that an unsupported module leaves no run directory behind.
        layout = self._check_records(given)
        self.module, self._automatic = given.module, given.clipping == "automatic"
        self.planned_steps = config["security"]["differential_privacy"].get("target_steps")
        session = self._start(given, config)
        by_preset = session.strategy() if "extends" in config["security"]["differential_privacy"] else "flat"
        self._arguments = {"clipping": given.clipping or by_preset, "loss_reduction": given.loss_reduction,
                           "gradient_accumulation_steps": given.gradient_accumulation_steps}
        try:
            parts = self._parts(session, given)
            state.load(self, session, given.module, given.optimizers)
            session.noise_multiplier()  # fails here if no noise meets the target
        except BaseException:
            if self.directory is not None:
                session.close()
            raise
        self._session = session
        return self._install(given, parts, layout)

    @staticmethod
    def _check_records(given: Arguments) -> selfcheck.Layout | None:
        if not given.self_check:
            validate(given.module, strict=True)
            return None
        return selfcheck.run(given.module, given.data_loader, given.example_inputs, reduction=given.loss_reduction,
                             criterion=given.criterion, most=given.max_physical_batch_size)

    def _start(self, given: Arguments, config: dict[str, Any]) -> Any:
        """The core's mechanism, with its run directory if there is one."""
        text, tensors = _json(config).encode(), given.tensors()
        if self.directory is None:
            return _core.MechanismSession(text, "make_private", [], tensors, None, None, self.threads)
        return _core.RunSession(text, "make_private", tensors, self.directory, self.resume, given.rows,
                                dataset.digest(given.data_loader.dataset, given.data_digest), {"torch": torch.__version__},
                                self.threads)

    @staticmethod
    def _parts(session: Any, given: Arguments) -> dict[str, int]:
        """The part of the clip plan that each trained parameter belongs to, by name."""
        part_of = session.part_of()
        parts = {name: part_of[i] for i, (name, _, _, _, trains, _) in enumerate(given.tensors()) if trains}
        public = [name for name, part in parts.items() if part == 0xFFFFFFFF]
        if public:
            refuse(f"{', '.join(public)}: parameters of public modules get no private gradient; freeze them with "
                   "requires_grad_(False)")
        drawn = session.sampling()
        if (drawn["batch_size"], drawn["declared_size"]) != (given.batch, given.size):
            refuse(f"the configuration draws {drawn['batch_size']} of {drawn['declared_size']} records, but the loader "
                   f"draws {given.batch} of {given.size}; omit the sampling from settings")
        return parts

    def _install(self, given: Arguments, parts: dict[str, int], layout: selfcheck.Layout | None) -> PrivateLoader:
        """Hooks the module, the loader and the optimizers."""
        module, session = given.module, self._session
        self._clipper = Clipper(module, parts, fused=session.strategy() == "per_layer", bounds=session.clip_bounds,
                                mean=given.loss_reduction == "mean", batch=float(given.batch),
                                whole=layout.whole if layout else ())
        self._clipper.sink, self._clipper.check, self._clipper.failed = self, self._check_forward, self.drop
        if layout:
            self._clipper.learn(layout.rows, layout.looped)
        # A run with insecure_seed promises nothing, and repeats.
        draws = SecretDraws() if self.insecure_seed is None else None
        if draws:
            self._clipper.draw_secretly(draws)
        _share_threads(self.threads)
        self._layout = given.tensors()
        self._frozen = [(name, p) for name, p in module.named_parameters() if not p.requires_grad]
        self._shape = [(name, m._parameters, list(map(id, m._parameters.values())), m._modules,
                        list(map(id, m._modules.values()))) for name, m in module.named_modules()]
        self._dtypes = {name: p.dtype for name, p in module.named_parameters()}
        self.batch_size = given.batch
        self._close_batch()
        self._iterator = 0  # number of the loader's iterator that was started last
        self.steps_per_epoch = session.sampling()["steps_per_epoch"]
        rows = given.rows
        batches = Batches(lambda: session.sampler(rows), session.t, self.steps_per_epoch, size=given.size, mean=given.batch,
                          pieces=given.gradient_accumulation_steps, most=given.max_physical_batch_size)
        self._loader = PrivateLoader(given.data_loader, batches, self._begin, self._check_iterator, self._hand_out, draws)
        self._optimizers = Optimizers(self, given.optimizers)
        return self._loader

    # ---------------------------------------------------------------- called by the loader, the clipper and the optimizers

    def _begin(self) -> int:
        """Starts a new iterator of the loader and returns its number; earlier iterators may return no more batches. A batch
        that was drawn but not released comes again, since nothing about it is known."""
        self._clipper.look = True
        self.drop()
        self._close_batch()
        self._iterator += 1
        return self._iterator

    def _check_iterator(self, iterator: int) -> None:
        if iterator != self._iterator:
            refuse("two iterators of the private loader are in use: both return the batch of the same step, so its records "
                   "would enter the step twice. Use only the iterator that you started last, and iterate the loader in one "
                   "loop")

    def _hand_out(self, iterator: int, t: int, piece: int, records: int, final: bool) -> None:
        """The loader is about to return a piece of the batch of step t."""
        self._check_iterator(iterator)
        if t == self._session.t() and piece != self._batch.next_piece:
            refuse(f"the loader would return piece {piece} of the batch of step {t}, but piece {self._batch.next_piece} is "
                   "expected: some records would enter the step twice, or not at all; start a new iterator of the loader")
        if t != self._session.t():
            if self._batch.open and self._batch.final and t == self._session.t() + 1:
                refuse("the previous batch was drawn, but its step was not taken; every batch must end with optimizer.step(), "
                       "even one without records, because noise is added for it too. To inspect records, iterate the data set")
            refuse(f"the loader would return the batch of step {t}, but {self._session.t()} steps were taken: two iterators "
                   "are in use, and an earlier batch would come again; iterate the loader in one loop")
        if self._clipper.unfinished:
            self.drop()
        self._clipper.begin(records)
        self._batch.hand_out(self._clipper.records, final)

    def _close_batch(self) -> None:
        self._batch = Batch()
        # Layers run unclipped again, with any number of rows; a backward pass through them is then rejected.
        self._clipper.active = False

    def take_norms(self, norms: torch.Tensor) -> torch.Tensor:
        """The factor of each record of one backward pass, from its norms."""
        records = len(norms)
        if records > self._batch.left:
            given, left = self._batch.piece, self._batch.left
            self.drop()
            refuse(f"a backward pass has {records} records, but of the {given} records that the loader returned last, only "
                   f"{left} have not yet been in a backward pass; a record may be in only one backward pass of a step. Add "
                   "losses before backward(), call optimizer.zero_grad() to start the batch again, and use use_reentrant=False "
                   "in checkpoint()",
                   "INVALID_GRADIENT")
        norms = norms.contiguous()
        scales = torch.zeros_like(norms)
        drawn = 0 if self._clipper.absent else records
        try:
            self._session.take_norms(norms, scales, drawn, 0.01 if self._automatic else None)
        except Error as error:
            self._failed(error)
            raise
        self._batch.take(records)
        return scales

    def drop(self) -> None:
        """Forgets the records of the step; nothing about them is released."""
        self._clipper.drop()
        self._session.drop()
        self._batch.forget()

    def release(self) -> None:
        """Adds noise, accounts for the step, and sets the gradient of every parameter."""
        if self._closed:
            refuse("the run is closed; resume it with PrivacyEngine(directory=..., resume=True)")
        check_alone()
        self._check_module()
        if not self._batch.open:
            refuse("optimizer.step() was called without a batch of the loader, so there is nothing to release. Iterate the "
                   "loader that make_private returned")
        if not self._batch.is_started:
            refuse("optimizer.step() was called without a backward pass, so there is nothing to release. Call loss.backward() "
                   "for the batch first")
        if not self._batch.is_whole:
            # Whether a piece is left out may depend on one record in it; it would then change the others' contribution.
            refuse(f"optimizer.step() was called after backward passes of only {self._batch.seen} of the batch's "
                   f"{self._batch.handed} records; call loss.backward() for every piece, or start a new iterator of the "
                   "loader, which starts this batch again")
        noisy, rounded = dict(self._clipper.buffers), {}
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
                refuse(f"{error.sentence}. Stop here, or start a run with a larger target_epsilon or more noise", error.code,
                       error.op)
            raise
        # Before anything can fail: the batch was released, and must not enter another step.
        self._clipper.drop()
        self._close_batch()
        self._give(noisy, rounded)
        state.after_step(self, step)
        for callback in self.callbacks:
            callback({"step": step["t"] + 1, "epsilon": step["after"][1], "delta": self._session.budget()[1],
                      "confidential": step["metrics"]})

    def _give(self, noisy: dict[str, torch.Tensor], rounded: dict[str, torch.Tensor]) -> None:
        """Sets the gradient of every parameter. noisy: the released averages in float64; rounded: the same in float32, for a
        module that is not in float64. Rounding comes after the noise. Tests replace this to see what was released."""
        for name, p in self._clipper.parameters.items():
            p.grad = as_type((rounded or noisy)[name].view_as(p), p.dtype) if p.requires_grad else None

    def _failed(self, error: Error) -> None:
        self.drop()
        if self.directory is not None:
            self._session.fail(error.code, error.op, error.sentence)

    def _check_forward(self) -> None:
        if nn.parallel.DistributedDataParallel._active_ddp_module is not None:
            refuse("the module is called by DistributedDataParallel, which would exchange gradients without noise; call the "
                   "module itself, in one process")
        self._check_module()

    def _check_module(self) -> None:
        for name, p in self._frozen:
            if p.requires_grad:
                self.drop()
                refuse(f"{name} requires a gradient now, but did not when make_private was called: its gradient would get "
                       "neither clipping nor noise. Freeze it again, or start a new run")
        for name, p in self._clipper.parameters.items():
            if p.dtype != self._dtypes[name]:
                self.drop()
                refuse(f"{name} is {p.dtype} now, but was {self._dtypes[name]} when make_private was called; convert the "
                       "module before make_private, or start a new run")
        for name, own, parameters, below, modules in self._shape:
            if list(map(id, own.values())) != parameters or list(map(id, below.values())) != modules:
                self.drop()
                refuse(f"{name or 'the module'} has other parameters or layers than when make_private was called; start a new "
                       "run")

    # ---------------------------------------------------------------- for users

    def get_epsilon(self, delta: float | None = None) -> Epsilon:
        """Epsilon spent so far: an upper bound, usable as a number, with .lower, .delta and .adjacency."""
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
    def accountant(self) -> Account:
        """What was spent, in the form of Opacus' accountants."""
        return Account(self)

    @property
    def not_private(self) -> list[str]:
        """Why the run is not private; empty if it is."""
        return list(self._started().not_private())

    @property
    def notes(self) -> list[str]:
        """What was changed, replaced or has no effect, for people."""
        return list(self._started().notes())

    def save_checkpoint(self, path: str | os.PathLike[str] | None = None, *, module: nn.Module | None = None,
                        optimizer: object = None, **more: Any) -> None:
        """Writes everything that is needed to resume the run into its directory. more: further objects with state_dict(), such
        as schedulers. The checkpoint is confidential. A run without a directory cannot have one: it would have no place for the
        key."""
        state.save(self, path, more)

    def load_checkpoint(self, path: str | os.PathLike[str] | None = None, *, module: nn.Module | None = None,
                        optimizer: object = None, **more: Any) -> dict[str, Any]:
        """Restores the states of `more`. make_private with resume=True has already restored the module and the optimizer."""
        return state.restore_more(self, path, more)

    def finish(self, ended: str | None = None) -> Epsilon:
        """Ends the run and returns the epsilon that it claims, which the trace records too.

        ended: how the run ended. By default it is determined: "completed" if all planned steps were taken, "budget_reached" if
            the budget does not allow the next step, otherwise "interrupted". An interrupted run claims what all planned steps
            would have spent, or the whole budget if there is no plan, because the decision to stop may depend on the results.
            "completed" and "budget_reached" are rejected if they are not true.
        A run that is not private claims infinity.
        """
        return state.finish(self, ended)

    def close(self) -> None:
        """Closes the run's directory; further steps are rejected. The run can be resumed."""
        if self._session is not None and self.directory is not None:
            self._closed = True
            self._session.close()

    def _started(self) -> Any:
        if self._session is None:
            refuse("the run has not started; call make_private first")
        return self._session


class Account:
    """What was spent, in the form of Opacus' accountants."""

    def __init__(self, engine: PrivacyEngine) -> None:
        self._engine = engine

    def get_epsilon(self, delta: float | None = None) -> Epsilon:
        return self._engine.get_epsilon(delta)

    def __len__(self) -> int:
        return int(self._engine._started().t())

    @property
    def steps(self) -> int:
        return len(self)

    @staticmethod
    def mechanism() -> str:
        return "discreet"


def _share_threads(threads: int) -> None:
    """Lets the core use PyTorch's OpenMP threads. They wait actively, so a second set of threads would compete with them."""
    try:
        mapped = pathlib.Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    found = {line.split()[-1] for line in mapped if "libgomp" in line}
    for path in sorted(found, key=lambda path: "torch" not in path)[:1]:
        _core.use_openmp(path, threads)
