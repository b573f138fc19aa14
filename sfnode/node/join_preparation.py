"""From the operator's options to a daemon's settings: finds the run, makes the key, and checks every file."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.run import DATA_PRIVATE, OPEN_TO_ALL, AdmissionKind, Manifest, SignedManifest, TaskKind
from sfnode import run
from sfnode.keys import check_owner, claim_invitation, node_seed
from sfnode.model_files import clear_left_overs
from sfnode.network import MemoryConfig, NetworkConfig, ip_groups, policy, resident_bytes
from sfnode.node.control import work_limits
from sfnode.node.daemon_config import DaemonConfig
from sfnode.node.model_fetcher import in_disk_thread
from sfnode.reporter import Reporter
from sfnode.rewards import RewardCommand
from sfnode.rows import TaskTemplate, row_files
from sfnode.storage import DataDirectory, example_files, size_of_run
from sfnode.worker_protocol import NoiseConfig, TrainingConfig


async def prepare(
    signed: SignedManifest,
    options: run.JoinOptions,
    reporter: Reporter,
    claimed: Callable[[DataDirectory], None] = lambda _data_dir: None,
) -> DaemonConfig:
    """Return all settings of a daemon for this run. Fetch what is missing, and report it.

    ``claimed``: called, perhaps twice, when the node's directory is there and closed to other users.

    OperatorError: a file, a key or an option does not fit the run.
    """
    manifest = signed.manifest
    clear_left_overs()
    size = size_of_run(manifest)
    reporter.detail("run_size", f"run {manifest.name} takes {size}", **asdict(size))
    data_dir = run.find_data_directory(manifest, options.source.data_dir)
    data_dir.check_run(signed)
    _warn_of_open_run(manifest, options.network, reporter)
    typed = {name: getattr(options.training, name) for name in ("model", "data", "eval_data")}
    if options.is_relay and (unused := [f"--{name.replace('_', '-')}" for name, value in typed.items() if value]):
        text = f"a node with --relay does not train, and makes no use of {', '.join(unused)}"
        reporter.event_at(logging.WARNING, "unused_options", text, options=unused)
    if options.training.private_reward and manifest.task.kind is TaskKind.REWARD and not manifest.task.draws_answers:
        text = "--private-reward judges held-out answers alone: nodes of this run learn answers that rows name"
        reporter.event_at(logging.WARNING, "judges_held_out", text)
    fetched: Path | None = None
    if not options.is_relay and run.public_data.is_of_peers(manifest.task, options.training.data):
        if options.source.bootstrap.run_data_bytes:
            _claim(data_dir, reporter)
            claimed(data_dir)
        fetched = await run.public_data.find_public_data(manifest.task, options.source.bootstrap, data_dir, reporter)
    training, given, rows_sha256 = await in_disk_thread(_read_rows, manifest, options, fetched)
    _claim(data_dir, reporter)
    claimed(data_dir)
    basis = await run.find_basis(manifest, options.source, data_dir, reporter)
    if options.key is not None:
        data_dir.identity.link_to(options.key.expanduser())
    seed = await node_seed(manifest, data_dir, is_training=training is not None, reporter=reporter)
    _warn_of_copy(options, Signer(seed), reporter)
    if invitation := options.invite or options.source.bootstrap.invitation:
        claim_invitation(manifest, invitation, seed, data_dir)
    return DaemonConfig(
        signed=signed,
        data_dir=data_dir,
        identity_seed=seed,
        network=_network_config(manifest, options, Signer(seed)),
        training=training and replace(training, basis=basis),
        owner=None if options.owner_key is None else _owner(manifest, options.owner_key),
        neighbours_min=options.network.neighbours_min,
        eval_every_steps=options.training.eval_every,
        is_exiting_when_finished=options.is_exiting_when_finished,
        snapshot=options.snapshots.snapshot,
        snapshot_authors_min=options.snapshots.snapshot_authors,
        sharing=options.sharing,
        shared_data=given,
        rows_sha256=rows_sha256,
        limits=work_limits(options.limits),
    )


def _owner(manifest: Manifest, path: Path) -> Signer:
    """Return the owner's key to sign for used invitations. OperatorError: the run has none, or it is another key."""
    if manifest.admission.kind is not AdmissionKind.INVITE:
        raise OperatorError(
            f"--owner-key signs for used invitations, and the run's admission is {manifest.admission.kind.value}: "
            "leave it out"
        )
    return check_owner(path.expanduser(), manifest)


def _claim(data_dir: DataDirectory, reporter: Reporter) -> None:
    """Close the directory to other users before the first file is written there."""
    if data_dir.claim():
        text = (
            f"other users of this machine could enter {data_dir} until now; it is closed to them. If it seems to be in "
            f"use and no node of yours runs there, remove {data_dir.lock_file}"
        )
        reporter.event_at(logging.WARNING, "directory_closed", text, data_dir=str(data_dir))


def _warn_of_open_run(manifest: Manifest, network: run.NetworkOptions, reporter: Reporter) -> None:
    """Warn the operator if strangers can reach this node and keys of the run cost nothing."""
    is_reachable = any(
        not (address.is_inside or address.is_loopback) for address in (*network.listen, *network.announce)
    )
    if manifest.admission == OPEN_TO_ALL and is_reachable:
        text = (
            "this run is open and keys cost nothing: whoever reaches this node can end the training, or steer it. "
            "`sfnode init` makes runs by invitation unless told otherwise"
        )
        reporter.event_at(logging.WARNING, "open_run", text)


def _warn_of_copy(options: run.JoinOptions, signer: Signer, reporter: Reporter) -> None:
    """Warn the operator where an address to dial names this node's own key: a node there has a copy of it."""
    own = policy.peer_of_author(signer.author)
    for address in options.source.bootstrap.nodes:
        if address.peer == own:
            text = (
                f"{address} names this node's own key, and is not dialled. If another node runs there, it has a copy "
                "of this key: stop one of the two, since each voids the other's updates"
            )
            reporter.event_at(logging.WARNING, "own_address", text, address=str(address))


def _network_config(manifest: Manifest, options: run.JoinOptions, signer: Signer) -> NetworkConfig:
    network, upload, name = options.network, options.limits.max_upload, None
    if network.name is not None:
        own_name = policy.node_names.parse_name(network.name)
        name = policy.node_names.sign_name(signer, manifest.run_id, own_name, int(time.time()))
    # The run's coefficients come on top of the limit, twice: the state, and the copy on its way to the worker.
    memory_bytes_max = (network.memory_max << 20) + 2 * size_of_run(manifest).coefficients
    return NetworkConfig(
        own_name=name,
        listen=network.listen,
        announce=network.announce,
        bootstrap=options.source.bootstrap.nodes,
        neighbours_fixed=network.neighbours_fixed,
        local_discovery=not network.no_mdns,
        port_mapping=network.upnp,
        upload_bytes_per_s=0 if upload is None else run.parse_rate(upload),
        origins=ip_groups.Origins(is_private_limited=network.limit_private, proxies=network.trusted_proxy),
        memory=MemoryConfig(bytes_max=memory_bytes_max, look=resident_bytes),
    )


def _read_rows(
    manifest: Manifest, options: run.JoinOptions, fetched: Path | None
) -> tuple[TrainingConfig | None, Path | None, str]:
    """Check the operator's files, however long; return what to train with, what to give, and the hash of noisy rows."""
    training = None if options.is_relay else _training_config(manifest, options, fetched)
    given, file = None, None if training is None else training.data
    if options.sharing.share_data:
        if training is None and options.training.data is not None:
            file = example_files.training_file(manifest.task, options.training.data)
        given = run.public_data.shared_data(manifest.task, file)
    is_noisy = training is not None and training.noise is not None
    return training, given, example_files.sha256_of(file) if is_noisy and file is not None else ""


def _training_config(manifest: Manifest, options: run.JoinOptions, fetched: Path | None) -> TrainingConfig:
    training = options.training
    eval_data = example_files.evaluation_file(manifest.task, training.eval_data)
    if training.eval_every and eval_data is None:
        raise OperatorError("--eval-every needs --eval-data: a JSONL file of held-out examples")
    data = fetched or example_files.training_file(manifest.task, training.data)
    # The worker, which reads them again, starts only when the node is admitted: that may be days from now.
    own = (data if manifest.task.data == DATA_PRIVATE else None, None if training.eval_data is None else eval_data)
    for rows in filter(None, own):
        row_files.checked_texts(rows, TaskTemplate(manifest.task), is_judged=training.private_reward is None)
    return TrainingConfig(
        model=run.joiner_model(manifest, training, options.sharing),
        data=data,
        eval_data=eval_data,
        devices=options.devices,
        threads=training.threads,
        worker_socket=training.worker_socket,
        noise=_noise_config(manifest, training),
        private_reward=_private_reward(manifest, training),
    )


def _private_reward(manifest: Manifest, training: run.TrainingOptions) -> str | None:
    """Return the operator's own command for rewards. OperatorError: the run has none, or it cannot be one."""
    if training.private_reward is None:
        return None
    if manifest.task.kind is not TaskKind.REWARD:
        raise OperatorError("--private-reward checks answers, and this run learns from labels or texts: leave it out")
    RewardCommand(training.private_reward)  # raises
    return training.private_reward


def _noise_config(manifest: Manifest, training: run.TrainingOptions) -> NoiseConfig | None:
    """Return the noise that the operator wants. OperatorError: it would protect nothing in this run."""
    if training.noise is None:
        if training.epsilon_max is not None:
            raise OperatorError(
                "--epsilon-max limits what messages with noise give away: add --noise, such as --noise 1"
            )
        return None
    if not manifest.method.is_dense:
        raise OperatorError(
            "--noise works with dense cores only; this run's messages are slopes along drawn directions"
        )
    if manifest.task.draws_answers:
        raise OperatorError(
            "--noise hides single rows, and in a run that draws answers several of a message come from "
            "one row: it would promise too much. Leave it out, or join a run that learns from labels or texts"
        )
    if manifest.task.data != DATA_PRIVATE:
        raise OperatorError(f"--noise hides rows of one's own; this run's data, {manifest.task.data}, are public")
    limit = None if training.epsilon_max is None else run.parse_noise(training.epsilon_max)
    return NoiseConfig(multiplier=run.parse_noise(training.noise), epsilon_max=limit)
