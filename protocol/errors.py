"""The one tree of errors of the project, and the closed lists of reasons.

The text of an error is what the operator reads: it says what failed, where, and what to do. Reasons are stable
numbers of the specification (SPEC 8.6): they are appended, never renumbered and never reused.
"""

from enum import IntEnum


class RejectReason(IntEnum):
    """Why bytes can never be valid: a pure function of (manifest, bytes). The sender is provably wrong."""

    SIZE = 1
    AUTHOR_KEY = 2
    STEP_RANGE = 3
    STEP_ALIGNMENT = 4
    SEED = 5
    SCALAR_RANGE = 6
    SCALAR_ENERGY = 7
    SIGNATURE = 8
    FRAME = 9
    MESSAGE_KIND = 10
    MESSAGE_FIELD = 11
    MESSAGE_NOT_CANONICAL = 12
    MANIFEST_FORMAT = 13
    MANIFEST_FIELD = 14
    MANIFEST_SIGNATURE = 15
    UNREQUESTED = 16
    RUN_ID = 17
    BASIS = 18
    AUDIT_FORMAT = 19
    LOG_FORMAT = 20
    AUTHOR_WORK = 21
    STATEMENT_FORMAT = 22
    STATEMENT_SIGNATURE = 23
    SNAPSHOT_FORMAT = 24


class IgnoreReason(IntEnum):
    """Why valid bytes are not used now. Depends on clock, load or order, so it may be retried and is nobody's fault."""

    ALREADY_HELD = 1
    SLOT_VOID = 2
    TOO_EARLY = 3
    AUTHORS_FULL = 4
    NOT_ADMITTED = 5
    EXCLUDED = 6
    STATEMENTS_FULL = 7
    ATTESTATIONS_FULL = 8


class SfnodeError(Exception):
    """Root of every error that this project raises on purpose."""


class OperatorError(SfnodeError):
    """A flag, file, address or setting is wrong. The text names it, what is allowed, and what to do.

    ``code`` is for programs, and says where a node is in another state than a command needs: docs/commands.md
    """

    def __init__(self, text: str, code: str = "operator") -> None:
        super().__init__(text)
        self.code = code


class Reject(SfnodeError):
    """Bytes that no honest node can have produced. They are never relayed, and the peer that sent them is penalised."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(f"{reason.name.lower()}: {detail}")
        self.reason = reason
        self.detail = detail


class OtherReleaseError(Reject):
    """A run's basis, which may be intact, is none of this release: another one made the run. Use that one."""


class Ignore(SfnodeError):
    """Valid bytes that cannot be used now. They may come again later."""

    def __init__(self, reason: IgnoreReason, detail: str) -> None:
        super().__init__(f"{reason.name.lower()}: {detail}")
        self.reason = reason
        self.detail = detail


class StorageDamagedError(SfnodeError):
    """The data directory holds bytes that this node cannot have written, or it is no longer writable. Stop."""


class StateMismatchError(SfnodeError):
    """Equal ledger digests with different state digests: a bug or a broken machine. Save the evidence and stop."""


class UnsettledError(SfnodeError):
    """A node should leave at the end of the run, but cannot know whether the others hold all that it holds."""


class NumericError(SfnodeError):
    """A loss or projected gradient is not finite. The step is skipped."""


class WorkerError(SfnodeError):
    """The training worker cannot serve: it ended, or refused the request."""


class WorkerMemoryError(WorkerError):
    """The worker ran out of memory. During the model's load the operator must act; later it costs one step."""


def texts_of(error: BaseException | None) -> list[str]:
    """Return the texts of an error of ours or of a group of ours, without repeats; empty if any error is not ours."""
    if isinstance(error, SfnodeError):
        return [str(error)]
    if not isinstance(error, BaseExceptionGroup):
        return []
    ours, others = error.split(SfnodeError)
    return [] if others is not None or ours is None else list(dict.fromkeys(map(str, leaves_of(ours))))


def leaves_of(group: BaseExceptionGroup[SfnodeError]) -> list[SfnodeError]:
    """Return the errors of a group, those of nested groups included."""
    leaves: list[SfnodeError] = []
    for entry in group.exceptions:
        leaves.extend(leaves_of(entry) if isinstance(entry, BaseExceptionGroup) else [entry])
    return leaves


def first_line(error: BaseException) -> str:
    """Return the first line of a library error's text, at most 300 characters; the class name if the text is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
