"""The key of a node that joins: the one in its data directory, or a new one with the run's work; and invitations."""

from protocol.crypto import Signer
from protocol.errors import OperatorError, Reject
from protocol.ledger import StatementCodec, read_invitation
from protocol.run import AdmissionKind, Manifest
from sfnode.keys.proof_of_work import check_work, find_seed
from sfnode.reporter import Reporter
from sfnode.storage import DataDirectory, pasteable


async def node_seed(manifest: Manifest, data_dir: DataDirectory, *, is_training: bool, reporter: Reporter) -> bytes:
    """Return the secret seed of the node's key, made if missing. OperatorError if the key cannot contribute.

    Only a node that trains needs a key with work in it.
    """
    key, path = data_dir.identity, data_dir.identity.path
    if not path.exists() and (author := data_dir.author()) is not None:
        raise OperatorError(
            f"{path} is missing, but the identity {author} has run on this directory, and a new one is never made in "
            f"its place. Restore it: {pasteable('sfnode id restore BACKUP --data-dir', data_dir)}. To be somebody "
            f"else from now on: {pasteable('sfnode id new --out', path)}"
        )
    if is_training and manifest.admission.pow_bits and not path.exists():
        expected = 1 << manifest.admission.pow_bits

        def report(tries: int, seconds: float) -> None:
            left_s = max(0.0, seconds / tries * (expected - tries))
            text = f"looking for a key with {manifest.admission.pow_bits} bits of work: {tries:,} tried of about "
            text += f"{expected:,}, some {left_s:.0f} s more"
            reporter.progress("finding_key", text, tries=tries, tries_expected=expected, seconds=round(seconds, 1))

        key.store(await find_seed(manifest, report))
    seed = key.made_seed()
    if is_training:
        check_work(manifest, Signer(seed).author, str(path))
    return seed


def claim_invitation(manifest: Manifest, text: str, seed: bytes, data_dir: DataDirectory) -> None:
    """Sign and keep the claim of an invitation for this node's key. The node publishes it unless it is used already.

    Raises OperatorError.
    """
    if manifest.admission.kind is not AdmissionKind.INVITE:
        kind = manifest.admission.kind.value
        raise OperatorError(f"--invite does not apply: the run's admission is {kind}. Leave it out")
    codec, invitation = StatementCodec(manifest), read_invitation(text)
    data = codec.claim(invitation, Signer(seed).author)
    try:
        codec.check_signed(codec.decode_untrusted(data))
    except Reject:
        raise OperatorError(
            "--invite: the owner of this run has not signed it; it is for another run. Ask them for one"
        ) from None
    data_dir.statements.keep_claim(data)
