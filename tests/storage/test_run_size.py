"""What a joiner is told of a run's size before it joins."""

from __future__ import annotations

from benchmarks.sample_runs import Shape, manifest_of
from protocol.run.manifest import coefficient_count
from sfnode.storage.run_size import size_of_run


def test_run_size__defaults_of_init__are_what_the_threat_model_says() -> None:
    """127 MB of records, times 1.3 on the disk."""
    manifest = manifest_of(Shape(authors=32, steps=500))
    size = size_of_run(manifest)
    assert size.ledger == int(1.3 * 126_976_000) and size.authors == 1_024
    assert size.coefficients == 8 * coefficient_count(manifest)
    assert str(size) == (
        f"at most {size.coefficients / 1e6:.1f} MB of memory for its coefficients, and 165.1 MB of disk for the "
        "updates of 1,024 authors"
    )


def test_run_size__long_run__is_told_in_gigabytes() -> None:
    assert "16.5 GB of disk" in str(size_of_run(manifest_of(Shape(authors=32, steps=50_000))))
