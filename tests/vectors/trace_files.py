"""The files of traces: which stories stand in which, and what all cases of one file share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from protocol.run.manifest import Manifest
from tests.support.ledgers import signer
from tests.vectors.notation import Document, document
from tests.vectors.runs import texts
from tests.vectors.trace_notation import Parts
from tests.vectors.trace_recorder import ME, Story

_AUTHORS = 20  # that have a name in the files
Stories = Callable[[], Iterable[Story]]


def traces(about: str, stories: Stories, manifests: dict[str, Manifest]) -> Document:
    """One file: every story as a case."""
    names = {manifest.run_id: name for name, manifest in manifests.items()}
    parts = Parts({ME.author: "me", **{signer(number).author: f"a{number}" for number in range(_AUTHORS)}})
    told = list(stories())
    for story in told:
        story.name_parts(parts)
    cases = [story.case(lambda manifest: names[manifest.run_id], parts) for story in told]
    return document(about, cases, manifests=texts(manifests), parts=parts.table())
