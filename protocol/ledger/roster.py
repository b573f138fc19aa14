"""The roster: the set of statements of a run, and who may contribute according to it (SPEC 7.7).

Its meaning depends on the set alone: an admission is permanent, the earliest of several exclusions applies, and a token
that more authors have claimed than may use it admits nobody.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol import limits
from protocol.crypto import Author, hashing
from protocol.errors import Ignore, IgnoreReason
from protocol.ledger.digest_buckets import INNER_DIGEST_BYTES, inner_digest
from protocol.ledger.statements import Statement, StatementCodec, StatementKind
from protocol.run import AdmissionKind, Manifest, has_work

NO_STATEMENTS = bytes(INNER_DIGEST_BYTES)  # the digest of an empty roster


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterStatistics:
    """Holds what the roster says of one author.

    Attributes:
        admission: who may contribute to the run, in words.
        is_admitted: whether the author may contribute, exclusions aside.
        is_invitation_used: whether others used the author's invitation, too, so that it admits nobody.
        excluded_from: first step for which the owner excludes the author; None: not excluded.
    """

    admission: str
    is_admitted: bool
    is_invitation_used: bool
    excluded_from: int | None
    authors_excluded: int

    @property
    def is_open(self) -> bool:
        """Return whether anybody may contribute whose key has the work that the run asks for."""
        return self.admission.startswith(AdmissionKind.OPEN)


class Roster:
    """Holds the statements of one run by key: one each; of a token one for each use, and one more if it is void."""

    def __init__(self, manifest: Manifest) -> None:
        self.codec = StatementCodec(manifest)
        self._admission = manifest.admission
        self._run_id = manifest.run_id
        self._held: dict[bytes, tuple[Statement, ...]] = {}
        self._claimed: Counter[Author] = Counter()  # tokens of each author that are not void
        self._void: set[Author] = set()  # authors with a claim on a token that is void
        self._excluded: dict[Author, int] | None = {}  # the result of `excluded`, which every tick reads; None: stale
        self._removals: list[tuple[int, str]] | None = []  # the result of `removals`, likewise
        self._ordered: list[bytes] | None = []  # keys, ascending; None after a change
        self._digest: bytes | None = NO_STATEMENTS

    def __len__(self) -> int:
        return len(self._held)

    def add(self, data: bytes) -> Statement:
        """Accept one statement, with the cheapest checks first.

        Reject: neither owner nor invitee can have made it. Ignore: it adds nothing new, or the table is full.
        """
        statement = self.codec.decode_untrusted(data)
        held = self._held.get(statement.key, ())
        # [IGNORE] SPEC 7.7.5: nothing follows from it that does not follow already.
        if self.covers(statement):
            raise Ignore(IgnoreReason.ALREADY_HELD, f"{statement.kind.name} of {statement.author.hex()[:16]} is held")
        # [IGNORE] SPEC 7.7.6: the table is full.
        if not held and len(self._held) >= limits.STATEMENTS_MAX:
            raise Ignore(IgnoreReason.STATEMENTS_FULL, f"{limits.STATEMENTS_MAX} statements are held already")
        self.codec.check_signed(statement)
        self._put(statement, held)
        return statement

    def _put(self, statement: Statement, held: tuple[Statement, ...]) -> None:
        self._held[statement.key] = (statement,)
        if statement.kind is StatementKind.CLAIM:
            self._held[statement.key] = (*held, statement)
            if len(held) < statement.uses:
                self._claimed[statement.author] += 1
            else:
                self._claimed.subtract(each.author for each in held)
                self._void |= {each.author for each in (*held, statement)}
        elif statement.kind is StatementKind.EXCLUDE:
            self._excluded = None
        self._digest = self._removals = None
        if not held:
            self._ordered = None

    # --- what follows -------------------------------------------------------------------------------------

    def is_admitted(self, author: Author) -> bool:
        """Return whether ``author`` may contribute at all, apart from exclusions."""
        if self._admission.kind is AdmissionKind.OPEN:
            return has_work(self._admission, self._run_id, author)
        return self._is_named(author) or self._claimed[author] > 0

    def _is_named(self, author: Author) -> bool:
        return bytes([StatementKind.ADMIT]) + author in self._held

    def to_admit(self) -> list[Author]:
        """Return, of each token, the authors whose claims came first to this node, for the owner to admit by name.

        They are as many as may use the token, less those of its claimants whom the owner has admitted already.
        """
        found: dict[Author, None] = {}
        for held in self._held.values():
            if held[0].kind is StatementKind.CLAIM:
                unnamed = [each.author for each in held if not self._is_named(each.author)]
                found |= dict.fromkeys(unnamed[: max(0, held[0].uses + len(unnamed) - len(held))])
        return [author for author in found if self.excluded_from(author) is None]

    def user_of(self, token: bytes) -> Author | None:
        """Return who uses a token for one author: its claimant, or the one of several whom the owner has admitted."""
        held = self.held(bytes([StatementKind.CLAIM]) + token)
        authors = [each.author for each in held if len(held) == 1 or self._is_named(each.author)]
        return authors[0] if len(authors) == 1 else None

    def is_used_up(self, claim: Statement) -> bool:
        """Return whether others have used up the token of ``claim``: this claim would make it void."""
        return sum(each.author != claim.author for each in self.held(claim.key)) >= claim.uses

    def excluded_from(self, author: Author) -> int | None:
        """Return the first step of ``author`` that an exclusion covers, None when there is no exclusion."""
        held = self._held.get(bytes([StatementKind.EXCLUDE]) + author)
        return held[0].from_step if held else None

    def counts_until(self, author: Author) -> int:
        """Return the first step of ``author`` that does not count: 0 when none does, STEPS_MAX + 1 when all do."""
        excluded_from = self.excluded_from(author)
        if not self.is_admitted(author):
            return 0
        # Above all steps, and above the first one after the longest run, for which a node looks once it has finished
        return limits.STEPS_MAX + 1 if excluded_from is None else excluded_from

    def check_counts(self, author: Author, step: int) -> None:
        """Raise Ignore when an update of ``author`` for ``step`` does not count."""
        excluded_from = self.excluded_from(author)
        # [IGNORE] SPEC 7.3: the owner has excluded the author from an earlier step on, or from this one.
        if excluded_from is not None and step >= excluded_from:
            text = f"author {author.hex()[:16]} is excluded from step {excluded_from} on"
            raise Ignore(IgnoreReason.EXCLUDED, text)
        # [IGNORE] SPEC 7.3: not admitted, or the statement is not here yet. In an open run missing work is a REJECT.
        if self._admission.kind is not AdmissionKind.OPEN and not self.is_admitted(author):
            raise Ignore(IgnoreReason.NOT_ADMITTED, f"author {author.hex()[:16]} is not admitted")

    def excluded(self) -> Mapping[Author, int]:
        """Return the first step that does not count of every excluded author, ascending by author."""
        if self._excluded is None:
            listed = [self._held[key][0] for key in self._keys() if key[0] == StatementKind.EXCLUDE]
            self._excluded = {statement.author: statement.from_step for statement in listed}
        return self._excluded

    def removals(self) -> Sequence[tuple[int, str]]:
        """Return from which step on the owner has excluded authors, ascending.

        With each stands a digest of all up to it: of equal ones, the same authors have left the steps before. Void
        tokens are left out: two keys that have sent nothing can make one void.
        """
        if self._removals is None:
            self._removals, digest = [], b""
            for first, author in sorted((first, author) for author, first in self.excluded().items()):
                digest = inner_digest("removals", digest, hashing.u32(first), author)
                self._removals.append((first, digest.hex()))  # for this node's own files: no domain of SPEC
        return self._removals

    def statistics(self, author: Author, claim: Statement | None) -> RosterStatistics:
        """Return what the roster says of ``author``; ``claim``: the author's claim of an invitation, held or not."""
        return RosterStatistics(
            admission=self._admission.in_words(),
            is_admitted=self.is_admitted(author),
            is_invitation_used=author in self._void or (claim is not None and self.is_used_up(claim)),
            excluded_from=self.excluded_from(author),
            authors_excluded=len(self.excluded()),
        )

    # --- the set ------------------------------------------------------------------------------------------

    def held(self, key: bytes) -> tuple[Statement, ...]:
        """Return the statements of a key, none to one more than a token has uses."""
        return self._held.get(key, ())

    def news_with(self, statement: Statement) -> tuple[Statement, ...]:
        """Return what to send for a new statement: itself, or all claims of the token that it has made void."""
        held = self.held(statement.key)
        return held if statement.kind is StatementKind.CLAIM and len(held) > statement.uses else (statement,)

    def covers(self, statement: Statement) -> bool:
        """Return whether the statement adds nothing to those held already."""
        if not (held := self._held.get(statement.key, ())):
            return False
        match statement.kind:
            case StatementKind.ADMIT:
                return True
            case StatementKind.EXCLUDE:  # the earliest wins, so that the order of arrival does not matter
                return held[0].from_step <= statement.from_step
            case StatementKind.CLAIM:
                return len(held) > statement.uses or any(each.author == statement.author for each in held)

    def page(self, after: bytes, count: int) -> tuple[list[bytes], bool]:
        """Return the statements of ``count`` keys after ``after``, ascending, and whether they are the last ones.

        Keys are left out at the end where the page would have more than 2 ``count`` statements.
        """
        keys, found = self._keys(), list[bytes]()
        start = end = bisect_right(keys, after)
        while end < min(len(keys), start + count) and len(found) + len(self._held[keys[end]]) <= 2 * count:
            found += [statement.data for statement in self._held[keys[end]]]
            end += 1
        return found, end >= len(keys)

    def statements(self) -> list[bytes]:
        """Return all statements, ascending by key."""
        return [statement.data for key in self._keys() for statement in self._held[key]]

    def authors(self) -> set[Author]:
        """Return all authors whom a statement names."""
        return {each.author for held in self._held.values() for each in held}

    def digest(self) -> bytes:
        """Return 16 bytes that are equal for sets of equal meaning, zeros when there are no statements."""
        if self._digest is None:
            fields = [part for key in self._keys() for part in (key, _value(self._held[key]))]
            self._digest = inner_digest("sfnode/statements/1", *fields)
        return self._digest

    def _keys(self) -> list[bytes]:
        if self._ordered is None:
            self._ordered = sorted(self._held)
        return self._ordered


def _value(held: tuple[Statement, ...]) -> bytes:
    """Return the content of a key's statements without key and signatures; empty for a void token."""
    match held[0].kind:
        case StatementKind.ADMIT:
            return b""
        case StatementKind.EXCLUDE:
            return hashing.u32(held[0].from_step)
        case StatementKind.CLAIM:
            return b"".join(sorted(each.author for each in held)) if len(held) <= held[0].uses else b""
