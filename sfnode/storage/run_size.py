"""The largest size of a run on a joiner's machine, by the bounds in its manifest."""

from dataclasses import dataclass

from protocol.ledger import EnvelopeCodec
from protocol.run import Manifest, coefficient_count

_COEFFICIENT_BYTES = 8
_ON_DISK = 1.3  # times the bytes of the records: pages and index of the database (docs/scale.md)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """Holds upper bounds in bytes.

    Attributes:
        coefficients: in memory, of all epochs, each stored in full.
        ledger: on the disk, if ``authors`` authors void every slot.
    """

    coefficients: int
    ledger: int
    authors: int

    def __str__(self) -> str:
        return (
            f"at most {_in_words(self.coefficients)} of memory for its coefficients, and {_in_words(self.ledger)} of "
            f"disk for the updates of {self.authors:,} authors"
        )


def size_of_run(manifest: Manifest) -> RunSize:
    records = 2 * manifest.authors_max * (manifest.steps // manifest.method.local_steps)
    return RunSize(
        coefficients=_COEFFICIENT_BYTES * coefficient_count(manifest),
        ledger=int(_ON_DISK * records * EnvelopeCodec(manifest).record_bytes),
        authors=manifest.authors_max,
    )


def _in_words(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
