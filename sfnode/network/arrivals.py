"""How a link becomes a session: hellos, and who is refused, served files as a stranger, or taken as a neighbour."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from protocol.errors import Reject
from protocol.wire import Hello
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.conversation import Conversation
from sfnode.network.discovery import PeerExchange
from sfnode.network.introduction import Introduction
from sfnode.network.memory_guard import MemoryGuard
from sfnode.network.policy import Fault
from sfnode.network.sessions import Channel, FileServer, RefusedError, SilentError, handshake
from sfnode.network.transport import Link, LinkBrokenError


class Arrivals:
    """Exchanges hellos on dialled and inbound links, and starts the conversation with those that may stay."""

    def __init__(
        self,
        introduction: Introduction,
        conversation: Conversation,
        exchange: PeerExchange,
        files: FileServer,
        memory: MemoryGuard,
        open_channel: Callable[[Link], Channel],
    ) -> None:
        self.is_stopping = False
        self._introduction = introduction
        self._conversation = conversation
        self._exchange, self._sessions = exchange, exchange.open_sessions
        self._files = files
        self._memory = memory
        self._open_channel = open_channel

    async def dialled(self, link: Link, on_handshake: Callable[[], None]) -> None:
        """Say hello on a dialled link, then run the session to its end. RefusedError, LinkBrokenError, Reject."""
        try:
            channel = self._open_channel(link)
            hello = await handshake.exchange_hello(channel, self._introduction.hello())
            on_handshake()
            await self._conversation.run(channel, hello, is_hello_due=False)
        finally:
            await link.aclose()

    async def inbound(self, link: Link) -> None:
        """Await the hello on an inbound link, then refuse the peer, serve it files or run a session."""
        channel = self._open_channel(link)
        try:
            await self._receive_stranger(channel)
        except SilentError as error:
            log(logging.DEBUG, "inbound_silent", peer=link.peer)
            self._sessions.penalise(link.peer, Fault.SILENT, str(error))
        except RefusedError as error:
            log(logging.DEBUG, "inbound_left", peer=link.peer, reason=str(error))
        except LinkBrokenError as error:
            log(logging.DEBUG, "inbound_lost", peer=link.peer, reason=str(error))
        except Reject as error:
            log(logging.WARNING, "peer_rejected", peer=link.peer, reason=str(error))
            self._sessions.drop(link.peer, str(error))
        finally:
            await link.aclose()

    async def _receive_stranger(self, channel: Channel) -> None:
        hello = await handshake.await_hello(channel)
        reason = self._reason_to_refuse(channel, hello)
        if reason is not None:
            log(logging.DEBUG, "inbound_refused", peer=channel.peer, reason=reason)
            host, bytes_max = channel.link.remote_host, bounds.HELLO_FRAME_BYTES_MAX  # the frame of a stranger
            others = (
                self._exchange.recommend(channel.peer, host, bytes_max=bytes_max) if reason == handshake.FULL else ()
            )
            await handshake.refuse(channel, reason, others)
        elif hello.run_id == handshake.OBSERVER_RUN_ID:
            await self._files.serve_stranger(channel, self._introduction.hello())
        else:
            channel.trust()
            await self._conversation.run(channel, hello, is_hello_due=True)

    def _reason_to_refuse(self, channel: Channel, hello: Hello) -> str | None:
        peer, host = channel.peer, channel.link.remote_host
        if self.is_stopping:
            return "the node stops"
        if self._sessions.is_discouraged(peer):
            return handshake.DISCOURAGED
        reason = handshake.mismatch(self._introduction.hello(), hello)
        if reason is not None:
            self._exchange.book.failed(peer, trio.current_time(), at_least_s=bounds.WRONG_RUN_S)
            return reason
        if hello.run_id == handshake.OBSERVER_RUN_ID:
            return None if self._files.has_room_for(host) else handshake.FULL
        if self._memory.state.is_full:
            return handshake.FULL
        return None if self._sessions.make_place(peer, host, self._exchange.config.inbound_max) else handshake.FULL
