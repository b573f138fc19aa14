"""Start a node from typed and remembered options; run it until a signal, a request or the end of the run."""

import contextlib
import signal
from pathlib import Path
from types import FrameType

import trio

from protocol.errors import OperatorError
from protocol.run import AdmissionKind, Manifest
from sfnode.children import stop_signals
from sfnode.cli.inviting import is_qr_shown, qr_lines
from sfnode.cli.joining.web_and_metrics import metrics_served, page_served
from sfnode.cli.remembered_options import Origin, Recalled, recall
from sfnode.doctor import MemoryPlan, foresee_memory
from sfnode.event_log import LEVELS, show_log
from sfnode.extras import check_can_add_noise, check_can_serve_page, check_can_train
from sfnode.network import Address, Readiness
from sfnode.node import Daemon, Life, prepare
from sfnode.reporter import Reporter, counted
from sfnode.run import JoinOptions, RunAddress, find_data_directory, find_manifest, public_data, purpose_of, run_address
from sfnode.status import author_names
from sfnode.storage import DataDirectory, pasteable
from sfnode.worker_protocol import free_memory

_NVIDIA = Path("/proc/driver/nvidia/version")


def run_node(options: JoinOptions, given: frozenset[str], log_level: str, *, is_json: bool, is_verbose: bool) -> None:
    """Run a node until it is stopped; ``given``: the typed settings, which override the remembered ones."""
    level = LEVELS[log_level]
    reporter = Reporter(is_json=is_json, level=level, is_verbose=is_verbose)
    show_log(reporter, level)
    life = Life()
    with reporter.unhurried():
        try:
            with life:
                trio.run(_run_until_stopped, options, given, reporter, life)
        finally:
            stop_signals.heed(signal.SIG_IGN)  # how it has ended is settled; Python would be killed on its way out
            reporter.finish()  # so that an error begins on a new line


async def _run_until_stopped(options: JoinOptions, given: frozenset[str], reporter: Reporter, life: Life) -> None:
    """Prepare and run the daemon; Ctrl-C and SIGTERM end it in good order at any time."""
    async with trio.open_nursery() as nursery:
        await nursery.start(_stop_on_signal, nursery.cancel_scope, reporter)
        _tell_string(options, reporter)
        signed = await find_manifest(options.source, reporter)
        data_dir = find_data_directory(signed.manifest, options.source.data_dir)
        data_dir.check_run(signed)  # whose options may be remembered there, and fit no other
        if data_dir.manifest_file.exists():  # a new one might still be anybody's: it is claimed first
            life.announce(data_dir)
        nursery.start_soon(life.stop_on_request, nursery.cancel_scope, reporter)
        recalled = recall(options, given, data_dir)
        _check(recalled.options)
        config = await prepare(signed, recalled.options, reporter, life.announce)
        daemon = Daemon(config, reporter)
        # The daemon itself refuses a second node on this directory: only nodes of other directories can have the key.
        with contextlib.nullcontext() if data_dir.is_locked() else data_dir.identity.in_use():
            async with page_served(daemon, recalled.options.web), metrics_served(daemon, recalled.options.metrics):
                await _run(daemon, recalled, life)
        nursery.cancel_scope.cancel()


def _tell_string(options: JoinOptions, reporter: Reporter) -> None:
    """Report what the string to join says, before any peer confirms it. Raises OperatorError on two invitations."""
    address = options.source.bootstrap
    if not address.run_model or address.run_id is None:
        return
    if address.invitation and options.invite not in (None, address.invitation):
        raise OperatorError("--invite is another invitation than that in the string to join: leave --invite out")
    invitation = ", with an invitation" if address.invitation else ""
    text = f"joining run {address.run_id.hex()[:16]}{invitation}: {public_data.described_source(address)}"
    fields = {"run_id": address.run_id.hex(), "model": address.run_model, "data": address.run_data}
    reporter.event("joining", text, **fields, is_invited=bool(address.invitation))


def _check(options: JoinOptions) -> None:
    """Refuse options that cannot work, before any file is written. Raises OperatorError."""
    if options.network.upnp and not options.network.listen:
        raise OperatorError("--upnp needs a port to be let in at: add --listen /ip4/0.0.0.0/tcp/PORT")
    if options.web is not None:
        check_can_serve_page()
    if not options.is_relay and options.training.worker_socket is None:
        check_can_train()
    if not options.is_relay and options.training.noise is not None:
        check_can_add_noise()


async def _stop_on_signal(scope: trio.CancelScope, reporter: Reporter, task_status: Readiness) -> None:
    """End the node at the first signal. Further ones change nothing: goodbyes have their time, and it has ended well.

    Programs that pass signals on, such as `uv run` and `make`, send a second one.
    """
    heard, is_heard, token = list[int](), trio.Event(), trio.lowlevel.current_trio_token()

    def hear(number: int, _frame: FrameType | None) -> None:
        heard.append(number)
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(is_heard.set)

    stop_signals.heed(hear)
    task_status.started(())  # no addresses: it hears signals from here on
    await is_heard.wait()
    name = signal.Signals(heard[0]).name
    reporter.event("stopping", f"stopping on {name}: saying goodbye to the peers", signal=name)
    scope.cancel()


async def _run(daemon: Daemon, recalled: Recalled, life: Life) -> None:
    """Run the daemon; remember its options once it has begun, because then they have worked."""
    if held := {key: each.value for key, each in recalled.settings.items() if each.origin is Origin.FILE}:
        path = daemon.config.data_dir.node_file
        text = f"remembered in {path}: {', '.join(held)} (`sfnode config` shows and changes them)"
        daemon.reporter.detail("remembered", text, file=str(path), settings=held)
    _tell_memory(daemon)
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(daemon.run)
        life.begin(daemon.config.data_dir)
        recalled.keep(daemon.config.data_dir)
        _tell_started(daemon, addresses)


def _tell_memory(daemon: Daemon) -> None:
    """Report the memory that this node's own worker takes once it loads the model. Raises OperatorError."""
    training = daemon.config.training
    if training is None or training.model is None or training.worker_socket is not None:
        return
    devices = training.devices
    how = devices.precision(daemon.manifest.model.weight_bytes), devices.device_memory
    plan, free = foresee_memory(daemon.manifest, training.model, *how), free_memory()
    if plan is not None:
        there = "" if free is None else f"; {free / 1e9:.1f} GB are free"
        peaks = {"load_peak": plan.load_peak, "training_peak": plan.training_peak}
        daemon.reporter.detail("memory_planned", f"memory: {plan}{there}", **peaks, node=plan.node, free=free)
        _check_memory(plan, devices.device, daemon.config.limits.memory_bytes_max)


def _check_memory(plan: MemoryPlan, device: str, limit: int | None) -> None:
    """Refuse a plan that exceeds --max-memory, before the model is loaded. Raises OperatorError."""
    has_card = device == "cuda" or (device == "auto" and _NVIDIA.exists())
    needed = plan.node + (plan.peak_beside_card if has_card else plan.peak)
    if limit is not None and needed > limit:
        raise OperatorError(
            f"--max-memory is {limit / 1e6:,.0f} MB, but this node would take about {needed / 1e6:,.0f} MB: {plan}. "
            "Give more, use a smaller --dtype (bf16, int8), or join with --relay, which does not train"
        )


def _tell_started(daemon: Daemon, addresses: tuple[Address, ...]) -> None:
    manifest, data_dir = daemon.manifest, daemon.config.data_dir
    people = [
        f"run {manifest.name}: the model learns {purpose_of(manifest.task)}",
        f"for its owner {author_names.short_key(manifest.owner)}, in {counted(manifest.steps, 'step')}; the time left "
        "is told once the pace is known",
        f"stop with Ctrl-C, and nothing is lost; go on with `{pasteable('sfnode start', data_dir)}`",
        f"look with `{pasteable('sfnode status', data_dir)}` or `{pasteable('sfnode top', data_dir)}`",
    ]
    where = f"run id {manifest.run_id.hex()}, data in {data_dir}"
    listening = [f"listening on {address}" for address in addresses] or ["not listening: this node dials out only"]
    given = run_address.address_for_others(manifest, addresses, daemon.data_sharing.bytes)
    string = run_address.join_string(given)
    fields = {"run_id": manifest.run_id.hex(), "data_dir": str(data_dir), "addresses": list(map(str, addresses))}
    how = _how_to_join(given, string, manifest, data_dir)
    daemon.reporter.event("started", *people, *how, join=str(given), string=string, **fields)
    daemon.reporter.detail("listening", where, *listening)


def _how_to_join(given: RunAddress, string: str, manifest: Manifest, data_dir: DataDirectory) -> list[str]:
    """Return lines that say how others join by this node; empty where they cannot dial it."""
    if not given.nodes:
        return []
    where = given.bounds and f" {given.bounds}"
    if manifest.admission.kind is AdmissionKind.INVITE:
        invite = pasteable("sfnode run invite --owner-key KEY --data-dir", data_dir)
        return [f"make a string for each who joins{where}: {invite}"]
    lines = [f"others join{where} with: {pasteable('sfnode join', string)}"]
    return [*lines, *qr_lines(string)] if is_qr_shown() else lines
