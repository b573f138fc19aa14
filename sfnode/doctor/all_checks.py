"""Run all checks in order, one line each. Torch runs in its own process, and only if the node is to train."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from protocol.errors import OperatorError, SfnodeError
from protocol.run import Manifest, SignedManifest
from sfnode.doctor import bootstraps, clock_and_port_checks, data_directory_check, memory_plan, model_check
from sfnode.doctor.findings import Finding, Verdict, fail, in_thread, ok, unknown, within
from sfnode.model_files import FetchedModel, find_model_folder
from sfnode.network import Address, policy, saved_peers
from sfnode.run import JoinOptions, joiner_model
from sfnode.status import last_status
from sfnode.storage import DataDirectory, size_of_run
from sfnode.worker_protocol import DeviceReport, free_memory

_QUICK_S = 20.0
_LEDGER_S = 60.0
_HASHING_S = 300.0  # 100 GB from a good disk
_DEVICE_S = 100.0
_REMEMBERED = 3  # peers to ask when no bootstrap is given


class Examination:
    """Runs all checks once, for a node with the options of `sfnode join`, and passes on each finding as it comes.

    Args:
        signed: the run's manifest; None: the data directory has it, or a bootstrap.
        is_new: whether the data directory may be missing; else it must be a node's.
    """

    def __init__(
        self, options: JoinOptions, signed: SignedManifest | None, report: Callable[[Finding], None], *, is_new: bool
    ) -> None:
        self._options, self._data_dir, self._nodes = options, options.source.data_dir, options.source.bootstrap.nodes
        self._signed, self._is_new = signed, is_new
        self._tell = report
        self._devices: DeviceReport | str = "not asked"

    async def run(self) -> None:
        """Run all checks, in the order in which a node would fail."""
        place = Path.cwd() if self._data_dir is None else self._data_dir.path
        is_node = self._read_manifest()
        needed = memory_plan.ledger_bytes(self._signed.manifest) if self._signed else 0
        await self._check("disk space", partial(data_directory_check.check_space, place, needed))
        await self._check("disk writing", partial(data_directory_check.check_writing, place))
        self._tell(clock_and_port_checks.check_files())
        if is_node and self._data_dir is not None:
            await self._look_at_directory(self._data_dir)
        await self._look_around()
        if self._signed is not None:
            self._tell(ok("run size", str(size_of_run(self._signed.manifest))))
        if not self._options.is_relay:
            await self._look_at_training()

    async def _check(self, name: str, run: Callable[[], Finding], limit_s: float = _QUICK_S) -> None:
        self._tell(await in_thread(name, limit_s, run))

    def _read_manifest(self) -> bool:
        """Read the manifest, if the directory has one; return False where it is not a node's, or of another run."""
        data_dir = self._data_dir
        if data_dir is None or (self._is_new and not data_dir.manifest_file.exists()):
            return True
        try:
            held = data_dir.signed_manifest()
        except OperatorError as error:
            is_starting = data_dir.starting_s() is not None
            how = "" if is_starting else "give the --data-dir of a node, or --bootstrap or --run for a new one"
            path = data_dir.path
            is_empty = path.is_dir() and os.access(path, os.R_OK) and not os.listdir(path)
            judge = unknown if is_starting or is_empty or not path.exists() else fail
            self._tell(judge("data directory", str(error), how))
            return False
        if self._signed is not None and self._signed.manifest.run_id != held.manifest.run_id:
            text = f"{data_dir} belongs to run {held.manifest.name!r}, the run file to another one"
            self._tell(fail("data directory", text, "use another --data-dir, or leave --run out"))
            return False
        self._signed = held
        return True

    async def _look_at_directory(self, data_dir: DataDirectory) -> None:
        manifest = self._signed.manifest if self._signed and data_dir.manifest_file.exists() else None
        await self._check("data directory", partial(data_directory_check.check_directory, data_dir, manifest))
        await self._check("privacy", partial(data_directory_check.check_privacy, data_dir))
        await self._check("identity", partial(data_directory_check.check_identity, data_dir))
        await self._check("ledger", partial(data_directory_check.check_ledger, data_dir), _LEDGER_S)
        if manifest is not None:
            await self._check("basis", partial(data_directory_check.check_basis, data_dir, manifest))
        if not self._options.is_relay and (speed := data_directory_check.check_speed(data_dir)) is not None:
            self._tell(speed)

    async def _look_around(self) -> None:
        """Check ports and bootstraps, then clock and reachability by what the bootstraps answer."""
        status = last_status(self._data_dir) if self._data_dir is not None and self._data_dir.is_locked() else None
        own_pid, listen = None if status is None else status.life.pid, self._options.network.listen
        for address in listen:
            look = partial(clock_and_port_checks.check_port, address, own_pid)
            self._tell(await within(f"listen {address}", _QUICK_S, look))
        run_id = self._signed.manifest.run_id if self._signed else self._options.source.bootstrap.run_id
        known = bootstraps.Surroundings(run_id=run_id, signed=self._signed, listen_port=0)
        async with clock_and_port_checks.held_open(listen[0] if listen else None) as port:
            known.listen_port = port
            await self._ask_peers(known)
        self._signed = known.signed
        self._tell(clock_and_port_checks.check_clock(known.clocks_ahead_s))
        reachability = bootstraps.judge_reachability(known, bool(listen))
        self._tell(reachability)
        if reachability.verdict is Verdict.WARNING:
            await self._check("router", clock_and_port_checks.check_router)

    async def _ask_peers(self, known: bootstraps.Surroundings) -> None:
        """Check the bootstraps; without one, the remembered peers, where one that answers is enough."""
        if self._nodes:
            await bootstraps.check_bootstraps(self._nodes, known, self._tell)
            return
        remembered: list[Finding] = []
        await bootstraps.check_bootstraps(_remembered(self._data_dir), known, remembered.append)
        if any(each.verdict is Verdict.OK for each in remembered):
            for finding in remembered:
                is_gone = finding.verdict is Verdict.FAIL
                self._tell(replace(finding, verdict=Verdict.WARNING) if is_gone else finding)
        elif remembered:
            text = f"none of the {len(remembered)} peers that the node met last answers: {remembered[0].text}"
            advice = "ask the owner for a new string to join, or give a --bootstrap"
            self._tell(fail("bootstrap", text, advice))
        else:
            self._tell(unknown("bootstrap", "none to dial was given: nobody was asked", "give --bootstrap as for join"))

    async def _look_at_training(self) -> None:
        training, manifest = self._options.training, self._signed.manifest if self._signed else None
        await self._check("device", self._check_device, _DEVICE_S)
        if (speeds := model_check.describe_speeds(self._devices)) is not None:
            self._tell(speeds)
        if manifest is None:
            how = "give --data-dir, --run or a --bootstrap that works"
            self._tell(unknown("model files", f"the run is not known: {how}"))
            return
        if training.revision not in (None, manifest.model.revision):
            text = f"--revision {training.revision} is not the run's: {manifest.model.revision or 'it has none'}"
            self._tell(fail("model files", text, "leave --revision out"))
            return
        try:
            reference, fetched = training.model, FetchedModel(manifest.model)
            if reference is None and fetched.is_here():
                reference = str(fetched.folder)
            elif reference is None:
                reference = joiner_model(manifest, training, self._options.sharing)
            folder = None if reference is None else find_model_folder(reference, manifest.model.revision)
        except OperatorError as error:
            advice = f"give a folder with a copy of {manifest.model.id}: --model FOLDER"
            self._tell(fail("model files", str(error), advice))
            return
        await self._check("model files", partial(model_check.check_model_files, folder, manifest.model), _HASHING_S)
        if folder is None:
            self._tell(unknown("memory plan", "the size of the model is not known before it is here"))
            return
        if not isinstance(self._devices, str):
            await self._check("tokens", partial(model_check.check_tokens, folder, manifest.task), _DEVICE_S)
        await self._check("memory plan", partial(self._plan, manifest, folder))

    def _check_device(self) -> Finding:
        self._devices, devices = model_check.find_devices(), self._options.devices
        dtype = devices.precision(self._signed.manifest.model.weight_bytes) if self._signed else devices.dtype
        return model_check.check_device(self._devices, devices.device, dtype)

    def _plan(self, manifest: Manifest, folder: Path) -> Finding:
        devices = self._options.devices
        dtype = devices.precision(manifest.model.weight_bytes)
        plan = memory_plan.plan_memory(manifest, folder, dtype, devices.device_memory)
        cards = () if isinstance(self._devices, str) else self._devices.cuda
        is_on_card = bool(cards) and devices.device in ("auto", "cuda")
        return memory_plan.judge_memory(plan, free_memory(), cards[0].free if is_on_card else None)


def _remembered(data_dir: DataDirectory | None) -> tuple[Address, ...]:
    if data_dir is None:
        return ()
    try:
        with data_dir.reading() as stored:
            rows = saved_peers.decode_rows(policy.PeerRow, stored.saved("known_peers"))
    except SfnodeError:
        return ()
    met = sorted((row for row in rows if row.last_success_unix_ms), key=lambda row: -row.last_success_unix_ms)
    texts = tuple(f"{row.addresses[0]}/p2p/{row.peer}" for row in met if row.addresses)
    return policy.parse_untrusted(texts)[:_REMEMBERED]
