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
            "with suppress(*_NOT_OPENED, IndexError), trio.fail_after(bounds.DIAL_S):",
        ),
    ),
    # A full address book forgets a peer that is being dialled, and its network is then looked up in there.
    "forgotten-while-dialled": (
        Edit("sfnode.network.policy.address_book", "AddressBook._forget_worst", " and peer not in in_use", ""),
        Edit(
            "sfnode.network.discovery.dial_choice", "DialChoice._taken",
            "[group for _, group in sorted(self.dialling.items())]",
            "[_group_of(self._book.addresses(peer)[0].host) for peer in sorted(self.dialling)]",
        ),
    ),
    # The worker is lost while its session is opened anew, and nobody hears that the step is lost.
    "lost-job": (
        Edit(
            "sfnode.worker.trainer", "Trainer._serve",
            "        if self._renewals() != self._opened_with:\n                await self._open(session)\n",
            "        pass\n",
        ),
        Edit(
            "sfnode.worker.trainer", "Trainer._serve",
            "            self.estimating = job.step",
            "            if self._renewals() != self._opened_with:\n                await self._open(session)\n"
            "            self.estimating = job.step",
        ),
    ),
    # All of a renewed basis comes from one neighbour, however slow it is, although another has it. A peer that means
    # harm does not end a slow session by itself, as our own nodes do.
    "one-slow-source": (
        Edit(
            "sfnode.network.sessions.file_answers", "serve_files",
            "trio.move_on_after(bounds.OBSERVER_S)", "trio.move_on_after(1e9)",
        ),
        Edit(
            "sfnode.node.file_fetcher", "FileFetcher.fetch",
            "    self._known.forget_all_but(self._sources.peers())\n",
            "    from contextlib import suppress\n"
            "    from sfnode.network import Download, RefusedError\n"
            "    for peer in self._sources.peers():\n"
            "        with suppress(RefusedError):\n"
            "            async with self._sources.asking(peer) as ask:\n"
            "                return await ask(Download(wanted))\n",
        ),
    ),
}  # fmt: skip
