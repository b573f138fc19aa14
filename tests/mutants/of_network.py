"""Cures for faults of libp2p 0.8.1, taken away one at a time: docs/libp2p.md lists them."""

from __future__ import annotations

from tests.mutants.detectors import Tests
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_PATCHES, _GUARD, _HOST, _SESSION = (
    "sfnode.network.transport.libp2p_patches",
    "sfnode.network.transport.stream_guard",
    "sfnode.network.transport.host",
    "sfnode.network.sessions.session",
)
_YAMUX = "sfnode.network.transport.bounded_yamux"
_OF_PATCHES, _OF_HOST = "tests/network/test_libp2p_patches.py::", "tests/network/test_host.py::"
_OF_SESSIONS, _OF_DOORS = "tests/network/test_sessions.py::", "tests/network/test_doorkeeper.py::"
_DIRECT, _LINK = "sfnode.network.transport.direct_session", "sfnode.network.transport.link"
_FRAMES_THAT_SAY_NOTHING = (
    "tests/network/test_direct_session.py::test_read__frames_that_say_nothing__are_read_no_faster_than_they_may_be"
)


def _mutant(name: str, breaks: str, edit: Edit, *tests: str) -> Mutant:
    return Mutant(name=name, breaks=breaks, edits=(edit,), detector=Tests(tests))


PROCESS = (
    _mutant(
        "any-libp2p",
        "another version of the library is taken, which the patches were not made for",
        Edit(_PATCHES, "check_library", "version != LIBRARY_VERSION", "False"),
        _OF_HOST + "test_library__other_version__operator_error",
    ),
    _mutant(
        "library-logs",
        "the library's own log lines go to the terminal",
        Edit(_PATCHES, "patch_library", "    _silence()\n", ""),
        _OF_PATCHES + "test_log__connections_come_and_fail__library_says_nothing",
    ),
    _mutant(
        "library-logs-to-the-root",
        "the one module that calls the root logger still does",
        Edit(_PATCHES, "_silence", '    swarm_connection.logging = logging.getLogger("libp2p")\n', ""),
        _OF_PATCHES + "test_log__connections_come_and_fail__library_says_nothing",
    ),
    _mutant(
        "port-shared",
        "two daemons listen on one port, and each gets half of the dials",
        Edit(_PATCHES, "patch_library", "    tcp._set_reuse_flags =", "    _ ="),
        _OF_HOST + "test_listen__second_host_slips_past_the_probe__still_refused",
    ),
    _mutant(
        "ip6-takes-ip4",
        "a node that listens on every interface of both families cannot: the listener of IPv6 has the port of IPv4",
        Edit(_PATCHES, "prepare_listener", "if endpoint.family == trio.socket.AF_INET6:", "if False:"),
        _OF_HOST + "test_listen__every_interface_of_both_families__one_port_serves_both",
    ),
    _mutant(
        "failed-start-keeps-port",
        "an error while a node begins to listen keeps its port, and its next life cannot begin",
        Edit(_HOST, "Host.running", "at_end.push_async_callback(self._in_stop_time, self.stop_listening)", "pass"),
        _OF_HOST + "test_listen__start_fails_after_the_bind__the_port_is_free_again",
    ),
    _mutant(
        "start-without-deadline",
        "a node whose library hangs as it begins to listen waits for ever, and Ctrl-C does not end it",
        Edit(_HOST, "Host.running", "trio.fail_after(bounds.START_S)", "trio.CancelScope()"),
        _OF_HOST + "test_listen__library_hangs_as_it_starts__ends_in_start_s_and_the_next_life_listens",
    ),
    _mutant(
        "failed-listen-is-silent",
        "a node that could not listen runs as if it did",
        Edit(_HOST, "Host._bound", "if not found:", "if False:"),
        _OF_HOST + "test_listen__second_host_slips_past_the_probe__still_refused",
    ),
    _mutant(
        "listen-without-probe",
        "nobody is told why the port cannot be had",
        Edit(_HOST, "check_can_listen", "for address in listen:", "for address in ():"),
        _OF_HOST + "test_listen__port_taken_by_another_program__operator_error_names_it",
    ),
    _mutant(
        "plaintext-offered",
        "the library's default list of security protocols: any dialler may choose plaintext and forge its id",
        Edit(_HOST, "_build_host", "        sec_opt={NOISE: noise},\n", ""),
        _OF_HOST + "test_security__dialler_offers_plaintext_only__is_refused",
    ),
    _mutant(
        "mplex-offered",
        "the library's default list of muxers: mplex cannot write while it waits for data",
        Edit(_HOST, "_build_host", "        muxer_opt={TProtocol(YAMUX): Yamux},\n", ""),
        _OF_HOST + "test_muxer__dialler_offers_mplex_only__is_refused",
    ),
    _mutant(
        "library-dials",
        "the library's dialler: 250 ms at least, first address only, stale ones too, not again for a minute",
        Edit(
            _HOST,
            "Host.dial",
            "            stream = await _connect(address, has_others)\n"
            "            return await self._upgrade(stream, address.peer)\n",
            "            from libp2p.peer.peerinfo import PeerInfo\n"
            "            peer = ID.from_base58(address.peer)\n"
            "            await self._host.connect(PeerInfo(peer, [Multiaddr(address.transport)]))\n"
            "            connection = self._swarm.get_connections(peer)[-1]\n"
            "            connection.muxed_conn.has_session = True\n"
            "            return await self._open_session(connection)\n",
        ),
        _OF_HOST + "test_dial__peer_was_down_a_moment_ago__is_tried_again_at_once",
        _OF_HOST + "test_dial__any_address__the_librarys_dialler_is_never_entered",
    ),
    _mutant(
        "dial-without-deadline",
        "a peer that accepts and never answers holds a dial for ever",
        Edit(_HOST, "Host.dial", "trio.fail_after(bounds.DIAL_S)", "trio.fail_after(600.0)"),
        _OF_HOST + "test_dial__listener_never_answers__gives_up",
    ),
)

STREAMS = (
    _mutant(
        "handlers-not-guarded",
        "a protocol name that is not UTF-8 ends the host of the peer that is sent it",
        Edit(_PATCHES, "patch_swarm", "    swarm.set_stream_handler(guard.handle)\n", ""),
        _OF_PATCHES + "test_stream_guard__protocol_name_is_not_utf8__host_survives",
    ),
    _mutant(
        "guard-lets-errors-through",
        "an exception in a handler of ours ends the host",
        Edit(_GUARD, "StreamGuard.handle", "with Boundary(failed):\n            if", "if True:\n            if"),
        _OF_PATCHES + "test_stream_guard__protocol_name_is_not_utf8__host_survives",
    ),
    _mutant(
        "streams-without-number",
        "one peer opens as many streams as it likes",
        Edit(_GUARD, "StreamGuard.handle", "self._open[peer] > bounds.INBOUND_STREAMS_PER_PEER_MAX", "False"),
        _OF_PATCHES + "test_stream_guard__peer_opens_40_streams__all_but_16_are_refused",
    ),
    _mutant(
        "inbound-takes-all-connections",
        "strangers from many networks keep the node from dialling anybody",
        Edit(_GUARD, "Doorkeeper.place", "len(self._callers) >= self._places_max", "False"),
        _OF_DOORS + "test_sockets__strangers_take_all_inbound_connections__the_node_still_dials",
    ),
    _mutant(
        "places-first-come-first-served",
        "silent connections from a few networks keep newcomers out",
        Edit(_GUARD, "Doorkeeper.place", "if not strangers:", "if True:"),
        _OF_DOORS + "test_sockets__more_silent_ones_than_the_open_files_allow__oldest_of_the_largest_crowd_gives_way",
    ),
    _mutant(
        "half-closed-streams-stay",
        "a peer that never ends its streams leaves one more here each second",
        Edit(_GUARD, "StreamGuard.handle", "is_done = await _has_ended(stream.muxed_stream)", "is_done = True"),
        _OF_DOORS + "test_streams__peer_never_ends_them__are_reset_after_a_while",
    ),
    _mutant(
        "identify-without-end",
        "a peer is told who we are as often as it asks",
        Edit(_PATCHES, "identify_once", "muxed.is_identified = True", "pass"),
        _OF_DOORS + "test_identify__asked_twice_on_a_connection__is_answered_once",
    ),
    _mutant(
        "pings-without-limit",
        "32 bytes are sent back as fast as a peer sends them",
        Edit(
            "sfnode.network.transport.ping",
            "answer_pings",
            "pings.take(1, bounds.PINGS_PER_S, trio.current_time())",
            "0.0",
        ),
        _OF_DOORS + "test_ping__faster_than_it_may_be__comes_back_more_slowly",
    ),
    _mutant(
        "slots-never-given-back",
        "250 inbound connections are all that a host accepts in its lifetime",
        Edit(
            _PATCHES,
            "patch_swarm",
            "    swarm._do_handle_inbound_connection = _inbound_handler(swarm, doorkeeper)\n",
            "",
        ),
        _OF_PATCHES + "test_inbound_slots__connections_come_and_go__slots_are_given_back",
    ),
    _mutant(
        "idle-connections-stay",
        "a connection without a session is kept for ever",
        Edit(_PATCHES, "_inbound_handler", "bounds.FIRST_SESSION_S", "600.0"),
        _OF_PATCHES + "test_inbound_connection__opens_no_session__is_closed",
    ),
    _mutant(
        "connections-without-number",
        "one peer holds as many connections as it likes",
        Edit(_PATCHES, "_inbound_handler", "len(connections) <= bounds.CONNECTIONS_PER_PEER_MAX", "True"),
        _OF_PATCHES + "test_inbound_connection__fifth_of_one_peer__is_closed",
    ),
    _mutant(
        "identify-runs",
        "the library asks every peer who it is, in system tasks whose errors end the process",
        Edit(_PATCHES, "patch_swarm", "    swarm.notifees.clear()\n", ""),
        _OF_PATCHES + "test_host__connected__opens_no_streams_of_its_own",
    ),
    _mutant(
        "identify-push-taken",
        "strangers fill our store of addresses",
        Edit(_HOST, "Host.__init__", "    self._host.remove_stream_handler(ID_PUSH)", "    pass"),
        _OF_PATCHES + "test_identify_push__peer_opens_it__is_refused",
    ),
    _mutant(
        "resource-manager-kept",
        "slots of the library's resource manager leak, and its rates hold for the whole process",
        Edit(_PATCHES, "patch_swarm", "    swarm.set_resource_manager(None)\n", ""),
        _OF_PATCHES + "test_host__connections_came_and_went__library_has_not_dialled_limited_or_remembered",
    ),
    _mutant(
        "auto-connector-kept",
        "the library remembers every peer for ever, to dial it",
        Edit(_PATCHES, "patch_swarm", "    swarm.auto_connector = _NoAutoConnector()\n", ""),
        _OF_PATCHES + "test_host__connections_came_and_went__library_has_not_dialled_limited_or_remembered",
    ),
    _mutant(
        "connections-pruned",
        "the library closes connections by rules of its own",
        Edit(_PATCHES, "patch_swarm", "    swarm._schedule_prune = lambda: None\n", ""),
        _OF_PATCHES + "test_host__connections_came_and_went__library_has_not_dialled_limited_or_remembered",
    ),
)

YAMUX = (
    _mutant(
        "control-frames-free",
        "control frames keep the library busy for as long as a peer sends them",
        Edit(_DIRECT, "DirectSession.read", "self._unpaid_frames += bounds.CONTROL_FRAME_COST", "pass"),
        _FRAMES_THAT_SAY_NOTHING,
    ),
    _mutant(
        "dropped-data-free",
        "data for streams that do not exist are decrypted as fast as a peer sends them",
        Edit(
            _DIRECT,
            "DirectSession.read",
            "self._unpaid_frames += len(body) / bounds.DROPPED_BYTES_PER_FRAME",
            "pass",
        ),
        _FRAMES_THAT_SAY_NOTHING,
    ),
    _mutant(
        "empty-messages-free",
        "messages of Noise with nothing in them are decrypted without end",
        Edit(_DIRECT, "DirectSession._receive", "self._unpaid_frames += 1", "pass"),
        _FRAMES_THAT_SAY_NOTHING,
    ),
    _mutant(
        "strangers-send-many-frames",
        "who has not said hello is read as fast as a neighbour",
        Edit(
            _DIRECT,
            "DirectSession._stay_within_rate",
            "bounds.STRANGER_FRAMES_PER_S if self._muxed.is_stranger else bounds.FRAMES_PER_S",
            "bounds.FRAMES_PER_S",
        ),
        _FRAMES_THAT_SAY_NOTHING,
    ),
    _mutant(
        "window-not-enforced",
        "a peer that ignores its window fills our memory",
        Edit(
            _YAMUX,
            "_BoundedBuffer.extend",
            "if self.owner.buffered_bytes()",
            "if False and self.owner.buffered_bytes()",
        ),
        _OF_PATCHES + "test_yamux_window__peer_ignores_it__connection_is_cut_and_memory_bounded",
    ),
    _mutant(
        "buffers-not-bounded",
        "new streams get the library's own buffers",
        Edit(_YAMUX, "_BoundedBuffers.__setitem__", "(stream_id, buffer)", "(stream_id, value)"),
        _OF_PATCHES + "test_yamux_window__peer_ignores_it__connection_is_cut_and_memory_bounded",
    ),
    _mutant(
        "frames-of-16-mib",
        "a frame longer than any window is read before it is refused",
        Edit(_PATCHES, "patch_library", "    yamux.MAX_WINDOW_SIZE = bounds.STREAM_WINDOW_BYTES\n", ""),
        _OF_PATCHES + "test_yamux_frame__longer_than_a_window__connection_is_cut_before_it_is_read",
    ),
    _mutant(
        "library-streams",
        "the library's streams: windows grow to 16 MiB, every read is answered with a window update",
        Edit(_PATCHES, "patch_library", "    yamux.YamuxStream = WindowedStream\n", ""),
        _OF_PATCHES + "test_yamux_stream__small_reads__no_window_update_for_each",
    ),
    _mutant(
        "update-for-each-read",
        "every read is answered with a window update",
        Edit(
            _YAMUX,
            "WindowedStream._auto_tune_and_send_window_update",
            "credit >= bounds.STREAM_WINDOW_BYTES // 2",
            "credit > 0",
        ),
        _OF_PATCHES + "test_yamux_stream__small_reads__no_window_update_for_each",
    ),
    _mutant(
        "writer-polls-its-window",
        "a writer without window is not woken when it opens",
        Edit(_YAMUX, "WindowedStream.write", "self._window_opened.wait()", "trio.sleep_forever()"),
        _OF_PATCHES + "test_yamux_stream__reader_pauses_for_a_minute__writer_waits",
    ),
    _mutant(
        "writer-waits-for-the-dead",
        "a writer without window is not told that its connection has ended",
        Edit(_YAMUX, "WindowedStream.write", "trio.move_on_after(1.0)", "trio.move_on_after(1e6)"),
        _OF_PATCHES + "test_yamux_stream__connection_ends_while_a_writer_waits__it_is_told",
    ),
    _mutant(
        "half-a-message-left",
        "after a cancelled write the connection goes on with half a Noise message",
        Edit(_YAMUX, "BoundedYamux._write_frame", "self.abort()", "pass"),
        _OF_PATCHES + "test_yamux_write__cancelled_half_way__connection_is_aborted",
    ),
    _mutant(
        "cut-without-a-word",
        "who is cancelled while it waits for its turn to write loses the connection",
        Edit(_YAMUX, "BoundedYamux._write_frame", "await trio.lowlevel.checkpoint_if_cancelled()", "pass"),
        _OF_PATCHES + "test_yamux_write__cancelled_before_its_turn__connection_stays",
    ),
    _mutant(
        "given-up-in-silence",
        "a stream that a cancelled task gives up: the peer is not told, and goes on sending",
        Edit(_LINK, "Link.reset", "shield=True", "shield=False"),
        _OF_PATCHES + "test_stream__given_up_by_a_task_that_is_cancelled__peer_is_told",
    ),
    _mutant(
        "connection-errors-spread",
        "an error in one connection's task ends the host",
        Edit(
            _YAMUX,
            "BoundedYamux.start",
            "with Boundary(self._failed):\n        await super",
            "if True:\n        await super",
        ),
        _OF_PATCHES + "test_connection__its_own_task_fails__host_survives",
    ),
)

CLOSING = (
    _mutant(
        "close-waits-for-the-writer",
        "the library's close waits for the lock that a blocked write holds",
        Edit(_PATCHES, "drop_connection", "muxed.abort()", "await muxed.close()"),
        _OF_PATCHES + "test_close__write_blocked__returns_at_once",
    ),
    _mutant(
        "closed-one-after-another",
        "31 connections take 6 s to close",
        Edit(
            _PATCHES,
            "drop_all_connections",
            "nursery.start_soon(drop_connection, connection.muxed_conn)",
            "await connection.close()",
        ),
        _OF_PATCHES + "test_close__many_connections__side_by_side",
    ),
    _mutant(
        "host-leaves-connections",
        "the end of a host is left to the library, which leaves the sockets of its connections open",
        Edit(_HOST, "Host.running", "partial(patches.drop_all_connections, self._swarm)", "trio.lowlevel.checkpoint"),
        _OF_PATCHES + "test_close__host_ends_with_eight_connections__does_not_wait_for_each",
    ),
    _mutant(
        "host-not-closed",
        "the port of a host that has ended still takes connections",
        Edit(_HOST, "Host.running", "at_end.push_async_callback(self._in_stop_time, self.stop_listening)", "pass"),
        _OF_HOST + "test_dial__peer_was_down_a_moment_ago__is_tried_again_at_once",
    ),
    _mutant(
        "last-words-lost",
        "a session ends before the peer has read what was queued: closing yamux drops it",
        Edit(_SESSION, "Session.say_bye", "self._scope.deadline = min(", "self._scope.cancel(); _ = min("),
        _OF_SESSIONS + "test_stop__neighbour__is_told_bye_and_gets_the_last_messages",
    ),
)
