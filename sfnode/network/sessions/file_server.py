"""A node's files for others, and others' files for it.

Strangers ask on a connection of their own, neighbours on a stream beside their session: no file holds up the flood.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from libp2p.custom_types import TProtocol

from protocol.errors import Reject
from protocol.wire import ManifestPart
from sfnode.network import bounds
from sfnode.network.policy import Fault
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Download, FindFile, manifest_part, no_file, serve_files
from sfnode.network.sessions.handshake import FULL, RefusedError, refuse
from sfnode.network.sessions.open_sessions import OpenSessions
from sfnode.network.transport import Host, Link, LinkBrokenError

FILES_PROTOCOL: Final = TProtocol("/sfnode/files/1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRun:
    """What the network says and serves of its run.

    Attributes:
        manifest_bytes: the signed manifest, for those who are about to join.
        record_bytes: of one record; 0 while that is not known.
        head_step: the step at which the node is, told to new neighbours.
        find_file: a published basis or a snapshot by its hash.
    """

    run_id: bytes
    manifest_bytes: bytes
    record_bytes: int = 0
    head_step: Callable[[], int] = lambda: 0
    find_file: FindFile = no_file


class FileServer:
    """Serves at most OBSERVERS_MAX at the same time."""

    def __init__(self, run: ServedRun, open_channel: Callable[[Link], Channel]) -> None:
        self._run = run
        self._open_channel = open_channel
        self._served = 0

    @property
    def is_busy(self) -> bool:
        """Whether as many are served as allowed."""
        return self._served >= bounds.OBSERVERS_MAX

    def manifest_part(self, offset: int) -> ManifestPart:
        """The answer to a ManifestRequest."""
        return manifest_part(self._run.manifest_bytes, offset)

    async def serve(self, channel: Channel) -> None:
        """Answer until the other side has had enough. LinkBrokenError, Reject."""
        self._served += 1
        try:
            await serve_files(channel, self._run.manifest_bytes, self._run.find_file)
        finally:
            self._served -= 1

    async def serve_neighbour(self, link: Link, open_sessions: OpenSessions) -> None:
        """A peer asks on a stream beside its session."""
        channel = self._open_channel(link)
        channel.trust()
        try:
            if self.is_busy or open_sessions.get(link.peer) is None:
                await refuse(channel, FULL)
            else:
                await self.serve(channel)
        except LinkBrokenError:
            pass  # the peer's own affair
        except Reject as error:
            open_sessions.penalise(link.peer, Fault.GARBAGE, str(error))

    async def fetch(self, download: Download, host: Host, open_sessions: OpenSessions) -> bytes | None:
        """The document from one neighbour after the other, in random order; None when none has it now."""
        sessions = list(open_sessions.all())
        random.shuffle(sessions)
        for session in sessions:
            link = await host.open_beside(session.channel.link, FILES_PROTOCOL)
            if link is None:
                continue
            channel = self._open_channel(link)
            channel.trust()
            try:
                return await download.run(channel)
            except (LinkBrokenError, RefusedError):
                continue
            except Reject as error:
                open_sessions.penalise(session.peer, Fault.GARBAGE, str(error))
            finally:
                await link.reset()
        return None
