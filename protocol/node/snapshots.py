"""A node's part in snapshots: it makes and attests them; a joiner uses one until its replay proves it (SPEC 9.5)."""

import hashlib
from collections import Counter
from collections.abc import Mapping

from protocol import events, limits, timings
from protocol.crypto import Author, Signer
from protocol.errors import Ignore, Reject
from protocol.node.node_config import NodeConfig, SnapshotUse
from protocol.node.snapshot_agreement import AttestationTable
from protocol.run import AdmissionKind
from protocol.state import Replica, snapshot as snapshot_file, snapshot_proof
from protocol.sync import Synchroniser
from protocol.wire import Attestations, AttestationsRequest, Message, PeerId

_RETRY_MS = 2_000  # until the next fetch when no neighbour had the file


class Snapshots:
    """Makes, attests, fetches, uses and proves snapshots for the node core."""

    def __init__(self, replica: Replica, signer: Signer, config: NodeConfig, sync: Synchroniser) -> None:
        self.attestations = AttestationTable(replica.manifest, replica.ledger)
        self.outcome = events.SnapshotOutcome.NONE
        self.ignored: Counter[str] = Counter()
        self._sync = sync
        self._manifest = replica.manifest
        self._replica = replica
        self._signer = signer
        self._config = config
        is_open = replica.manifest.admission.kind is AdmissionKind.OPEN
        wanted = {SnapshotUse.ALWAYS} if is_open else {SnapshotUse.ALWAYS, SnapshotUse.AUTO}
        self._is_usable = config.is_training and config.snapshot in wanted
        self._made_step = 0
        self._excluded: Mapping[Author, int] = {}  # exclusions that hold, when they were looked at last
        self._missing_since_ms: int | None = None  # since when what it counts and this node lacks has not come
        self._held = 0  # slots below its step then
        self._look_ms = 0
        self._asked: str | None = None  # the SHA-256 of the file that is being fetched; one at a time
        self._due_ms: dict[str, int] = {}  # when each failed file may be asked for again
        self._signed_by: tuple[snapshot_file.Attestation, ...] = ()  # of the snapshot that is or was used

    # --- messages -----------------------------------------------------------------------------------------

    def peer_joined(self, peer: PeerId) -> list[events.Effect]:
        """Ask a new neighbour for attestations if this node may use a snapshot and has not replayed everything."""
        is_asking = self._is_usable and not self._sync.is_live
        return [events.SendMessage(peer=peer, message=AttestationsRequest())] if is_asking else []

    def receive(self, peer: PeerId, message: Message) -> list[events.Effect]:
        """Answer a request, or store attestations and relay the new ones. Raises Reject."""
        if isinstance(message, AttestationsRequest):
            return [events.SendMessage(peer=peer, message=Attestations(attestations=self.attestations.page()))]
        assert isinstance(message, Attestations)
        fresh: list[bytes] = []
        for data in message.attestations:
            try:
                fresh.append(self.attestations.add(data, teller=None if self._sync.is_live else peer).data)
            except Ignore as ignore:
                self.ignored[ignore.reason.name] += 1
        # A node that is not live has asked for these, and its other neighbours have them.
        others = [each for each in self._sync.open_peers() if each != peer] if self._sync.is_live else []
        return _told(fresh, others)

    def tick(self, frontier: int | None, now_ms: int) -> list[events.Effect]:
        """Do what is due; ``frontier`` is None while more updates wait to be summed than one tick can sum."""
        effects = self._end(events.SnapshotOutcome.UNPROVED) if self._is_cut_since() else []
        if not self._sync.is_live:
            agreed = self._wanted()
            if agreed and self._asked is None and now_ms >= self._due_ms.get(agreed[0].sha256.hex(), 0):
                self._asked = agreed[0].sha256.hex()
                effects.append(events.FetchSnapshot(sha256=self._asked, file_bytes=agreed[0].file_bytes))
            return effects
        if frontier is None:
            return effects
        return [*effects, *self._make_if_due(frontier), *self._prove(now_ms)]

    # --- making -------------------------------------------------------------------------------------------

    def _make_if_due(self, frontier: int) -> list[events.Effect]:
        """Make a snapshot of each multiple of SPAN_STEPS that lies STEPS_AHEAD_MAX rounds behind the frontier."""
        behind = frontier - limits.STEPS_AHEAD_MAX * self._manifest.method.local_steps
        step = behind - behind % limits.SPAN_STEPS
        if step <= self._made_step:
            return []
        self._made_step = step
        if not snapshot_proof.may_fit(self._replica, step):
            return []
        data = snapshot_file.encode_snapshot(self._manifest, snapshot_proof.take_snapshot(self._replica, step))
        if len(data) > limits.SNAPSHOT_BYTES_MAX:
            return []
        sha256 = hashlib.sha256(data)
        return [
            events.StoreSnapshot(step=step, sha256=sha256.hexdigest(), data=data),
            *self._attest(step, len(data), sha256.digest()),
        ]

    def _attest(self, step: int, file_bytes: int, sha256: bytes) -> list[events.Effect]:
        """Attest the file if this node is an author of the run."""
        ledger, author = self._replica.ledger, self._signer.author
        if not self._config.is_training or ledger.highest_step(author) < 0:
            return []
        own = self.attestations.codec.attest(self._signer, step, file_bytes, sha256)
        try:
            return _told([self.attestations.add(own.data).data], self._sync.open_peers())
        except Ignore as ignore:  # this author is excluded, or attested the step before a restart
            self.ignored[ignore.reason.name] += 1
            return []

    # --- use ----------------------------------------------------------------------------------------------

    def _is_sought(self, updates: int = 0) -> bool:
        """Return whether this node is far enough behind its neighbours, one with ``updates``, to seek a snapshot."""
        if self._sync.is_live or not self._is_usable or self.outcome is not events.SnapshotOutcome.NONE:
            return False
        behind = max(updates, self._sync.target_updates) - self._replica.ledger.updates
        return self._config.snapshot is SnapshotUse.ALWAYS or behind > limits.SNAPSHOT_BEHIND_MIN

    def author_sought(self, updates: int) -> Author | None:
        """Return this node's key while it seeks or uses a snapshot: it must first learn its own rounds (SPEC 9.2.3)."""
        is_used = self._replica.snapshot is not None and not self._sync.is_live
        return self._signer.author if is_used or self._is_sought(updates) else None

    def _wanted(self) -> list[snapshot_file.Attestation]:
        """Return the attestations of the snapshot to fetch; empty when there is nothing to fetch."""
        return self.attestations.agreed(self._config.snapshot_authors_min) if self._is_sought() else []

    def fetch_failed(self, sha256: str, now_ms: int) -> None:
        """Plan another try after no neighbour had the file."""
        if sha256 == self._asked:
            self._asked = None
            self._due_ms[sha256] = now_ms + _RETRY_MS

    def show(self, data: bytes) -> list[events.Effect]:
        """Use a file that has come, if it is still the wanted one, as the worker's state from now on."""
        self._asked = None
        agreed, sha256 = self._wanted(), hashlib.sha256(data).digest()
        if not agreed or agreed[0].sha256 != sha256:
            return []
        try:
            snapshot = snapshot_file.decode_snapshot_untrusted(self._manifest, data)
        except Reject:
            snapshot = None
        self._signed_by = tuple(agreed)
        if snapshot is None or snapshot.step != agreed[0].step:
            return self._become(events.SnapshotOutcome.USELESS)
        self._excluded = self._replica.ledger.roster.excluded()
        self._replica.use_snapshot(snapshot)
        return self._become(events.SnapshotOutcome.USED)

    def may_train(self) -> bool:
        """Return whether this node knows enough to sign (SPEC 9.2.3).

        It is live, or it has a snapshot, all that follows it, and its own highest round from a neighbour.
        """
        snapshot = self._replica.snapshot
        if self._sync.is_live or snapshot is None:
            return self._sync.is_live
        return self._sync.has_own and self._sync.has_compared_from(snapshot.step)

    # --- proof --------------------------------------------------------------------------------------------

    def _prove(self, now_ms: int) -> list[events.Effect]:
        """Check the snapshot against the complete replay, whose result is the state from now on."""
        snapshot = self._replica.snapshot
        if snapshot is None or now_ms < self._look_ms:
            return []
        self._look_ms = now_ms + timings.HEAD_INTERVAL_MS
        verdict = snapshot_proof.judge(snapshot, self._replica)
        if verdict is snapshot_proof.ProofVerdict.UNEQUAL:
            return [self._halt(snapshot)]
        if verdict is snapshot_proof.ProofVerdict.MISSING:
            # A neighbour that lags or withholds also makes a node live, so wait for the others while updates come.
            held = self._replica.ledger.slots.slots_before(snapshot.step)
            if self._missing_since_ms is None or held != self._held:
                self._missing_since_ms, self._held = now_ms, held
            if now_ms - self._missing_since_ms < timings.SNAPSHOT_MISSING_MS:
                return []
        is_equal = verdict is snapshot_proof.ProofVerdict.EQUAL
        return self._end(events.SnapshotOutcome.PROVED if is_equal else events.SnapshotOutcome.UNPROVED)

    def _end(self, outcome: events.SnapshotOutcome) -> list[events.Effect]:
        self._replica.use_snapshot(None)
        return self._become(outcome)

    def _become(self, outcome: events.SnapshotOutcome) -> list[events.Effect]:
        self.outcome = outcome
        authors = tuple(each.author for each in self._signed_by)
        return [events.ReportSnapshot(outcome=outcome, step=self._signed_by[0].step, authors=authors)]

    def _is_cut_since(self) -> bool:
        """Return whether a new exclusion, or an earlier one, removes updates that the snapshot in use covers."""
        snapshot, before, held = self._replica.snapshot, self._excluded, self._replica.ledger.roster.excluded()
        if snapshot is None or held is before:
            return False
        self._excluded = held
        return any(step < snapshot.step and before.get(author) != step for author, step in held.items())

    def _halt(self, snapshot: snapshot_file.Snapshot) -> events.Halt:
        signers = ", ".join(each.author.hex()[:16] for each in self._signed_by)
        found = "the same updates give other coefficients"
        detail = f"the snapshot of the steps before {snapshot.step} is false: {found}. Signed by {signers}"
        return events.Halt(detail=detail, attestations=tuple(each.data for each in self._signed_by))


def _told(attestations: list[bytes], peers: list[PeerId]) -> list[events.Effect]:
    if not attestations:
        return []
    message = Attestations(attestations=tuple(attestations))
    return [events.SendMessage(peer=peer, message=message) for peer in peers]
