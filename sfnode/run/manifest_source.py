"""Finds the manifest and the published basis, which a joiner needs before its node can start.

They come from the operator's files, from the data directory, or from a bootstrap, in this order.
"""

import time
from pathlib import Path

from protocol.errors import OperatorError, Reject
from protocol.run import Manifest, SignedManifest, decode_run_untrusted
from sfnode.network import Address, DialReport, Download, Wanted, sessions
from sfnode.reporter import Reporter
from sfnode.run.node_options import RunSource
from sfnode.storage import DataDirectory, decode_run_file, disk, stored_basis

_PROGRESS_S = 1.0


async def find_manifest(source: RunSource, reporter: Reporter) -> SignedManifest:
    """Return the run's manifest, its signature checked. OperatorError: no source has it, or it is of another run."""
    wanted, nodes = source.bootstrap.run_id, source.bootstrap.nodes
    if source.run_file is not None:
        return _of_run(wanted, decode_run_file(source.run_file), source.run_file)
    if source.data_dir is not None and source.data_dir.manifest_file.exists():
        return _of_run(wanted, source.data_dir.signed_manifest(), source.data_dir.path)
    if not nodes:
        raise OperatorError(
            "say which run: `sfnode join -` asks for the string that its owner has sent you. An owner names the run "
            "file with --run; a node that exists is started by `sfnode start`"
        )

    data = await fetch_from_nodes(Wanted.manifest(wanted), nodes, reporter, "the run's manifest")
    try:
        return decode_run_untrusted(data)
    except Reject as reject:
        raise OperatorError(f"the bootstrap sent a bad manifest: {reject.detail}. Use another bootstrap") from None


def _of_run(wanted: bytes | None, signed: SignedManifest, source: Path) -> SignedManifest:
    manifest = signed.manifest
    if wanted is not None and manifest.run_id != wanted:
        raise OperatorError(
            f"{source} is of run {manifest.name!r} ({manifest.run_id.hex()[:16]}), and the address of run "
            f"{wanted.hex()[:16]}: leave out the one that you do not mean"
        )
    return signed


async def find_basis(manifest: Manifest, source: RunSource, data_dir: DataDirectory, reporter: Reporter) -> Path | None:
    """Return the file of the run's basis in ``data_dir``; None if it has no dense core. OperatorError."""
    if not manifest.method.is_dense:
        if source.basis is not None:
            raise OperatorError("--basis does not apply: the run's basis is random. Leave it out")
        return None
    given = source.basis or stored_basis.basis_beside(manifest, source.run_file)
    if given is not None:
        return data_dir.basis.store(manifest, disk.read_bytes(given, "the basis"), origin=given)
    held = data_dir.basis.find(manifest)
    try:
        stored_basis.read_bases(manifest, held)
        return held
    except OperatorError as error:
        if not source.bootstrap.nodes:
            raise
        if held is not None:
            reporter.event("basis_damaged", f"{error}: asking the bootstrap", file=str(held))
    nodes = source.bootstrap.nodes
    data = await fetch_from_nodes(Wanted.basis(manifest), nodes, reporter, "the run's published basis")
    path = data_dir.basis.store(manifest, data, origin="the file that the run's owner published")
    reporter.event("basis_fetched", f"the basis is here: {path}", file=str(path))
    return path


async def fetch_from_nodes(
    wanted: Wanted, nodes: tuple[Address, ...], reporter: Reporter, what: str, more: str = ""
) -> bytes:
    """Return ``what``, which one of the nodes gives; the event fetching_NAME begins, and ``more`` ends its line.

    NAME_progress follows once a second, and dial_failed for each node that could not be used. OperatorError.
    """
    told_s = time.monotonic()

    def show(received: int, total: int) -> None:
        nonlocal told_s
        if wanted.total and (received == total or time.monotonic() - told_s >= _PROGRESS_S):
            told_s = time.monotonic()
            text = f"fetching {what}, {received:,} of {total:,} bytes"
            reporter.progress(f"{wanted.name}_progress", text, received_bytes=received, total_bytes=total)

    def show_failure(report: DialReport) -> None:
        then = f"next try in {report.retry_in_s:.0f} s" if report.retry_in_s else "trying another at once"
        text = f"cannot fetch {what} from {report.address}: {report.reason}; {then}"
        reporter.event("dial_failed", text, address=report.address, reason=report.reason)

    size = f", {wanted.total:,} bytes" if wanted.total else ""
    fields = {"bootstrap": list(map(str, nodes)), "total_bytes": wanted.total}
    reporter.event(f"fetching_{wanted.name}", f"asking the bootstrap for {what}{size}{more}", **fields)
    return await sessions.fetch(Download(wanted, show), nodes, on_failure=show_failure)
