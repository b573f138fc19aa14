"""Faults that once ended nodes or their training: put back one at a time, the search must find each of them again.

The boundaries that hold such faults today stay: what is found is the fault itself, as a slip that no plan explains, or
a node that does not go on.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.patch import Edit

PUT_BACK: Final[dict[str, tuple[Edit, ...]]] = {
    # A peer answers the negotiation of a stream with what is no text. The error went on into the node's nursery.
    "garbage-in-negotiation": (
        Edit(
            "sfnode.network.transport.host", "Host.open_beside",
            "with Boundary(partial(self._not_opened, link.peer)), trio.fail_after(bounds.DIAL_S):",
            "with suppress(*_NOT_OPENED), trio.fail_after(bounds.DIAL_S):",
        ),
    ),
    # A full address book forgets a peer that is being dialled, and its network is then looked up in there.
    "forgotten-while-dialled": (
        Edit("sfnode.network.policy.address_book", "AddressBook._forget_worst", " and peer not in in_use", ""),
        Edit(
            "sfnode.network.discovery.dialler", "DialChoice._taken",
            "[group for _, group in sorted(self.dialling.items())]",
            "[ip_groups.public_group_of(self._book.addresses(peer)[0].host) for peer in sorted(self.dialling)]",
        ),
    ),
    # The worker is lost before it is asked for the step, and nobody hears that the step is lost.
    "lost-job": (
        Edit(
            "sfnode.worker.trainer", "Trainer._serve",
            "self.estimating = job.step if isinstance(job, events.StartEstimate) else None", "pass",
        ),
        Edit(
            "sfnode.worker.trainer", "Trainer._estimate",
            "request = messages.EstimateRequest(", "self.estimating, request = job.step, messages.EstimateRequest(",
        ),
    ),
    # Who joins takes all of the basis from the first node, however slow it is, although others have it. A node that
    # means harm does not end a slow session by itself, as our own do.
    "one-slow-source": (
        Edit(
            "sfnode.network.sessions.file_server", "serve_files",
            "trio.move_on_after(bounds.OBSERVER_S)", "trio.move_on_after(1e9)",
        ),
        Edit(
            "sfnode.network.sessions.file_download", "fetch",
            "download.bytes_per_s_min = bounds.OBSERVER_BYTES_PER_S_MIN / 2 ** (attempt - 1)", "pass",
        ),
    ),
}  # fmt: skip
