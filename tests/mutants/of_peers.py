"""Guards against peers, each taken away in turn: what one of them may cost, and what is held against it."""

from __future__ import annotations

from tests.mutants.detectors import Tests
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_CONVERSATION, _SESSION, _OPEN_SESSIONS = (
    "sfnode.network.neighbours",
    "sfnode.network.sessions.session",
    "sfnode.network.sessions.open_sessions",
)
_CHANNEL, _REPUTATION, _RATE_LIMITS = (
    "sfnode.network.sessions.channel",
    "sfnode.network.policy.reputation",
    "sfnode.network.policy.rate_limits",
)
_BOOK, _HOST = "sfnode.network.policy.address_book", "sfnode.network.transport.host"
_OF_BOOK = "tests/properties/test_address_book.py::"
_ADDRESSES, _DOORKEEPER = "sfnode.network.policy.addresses", "sfnode.network.transport.stream_guard"
_FILE_SERVER, _FILE_DOWNLOAD = "sfnode.network.sessions.file_server", "sfnode.network.sessions.file_download"
_OF_PLACES, _OF_DOORS = "tests/network/test_file_places.py::", "tests/network/test_doorkeeper.py::"
_OF_SESSIONS, _OF_REPUTATION = "tests/network/test_sessions.py::", "tests/network/test_reputation.py::"
_OF_INBOUND, _OF_SECURITY = "tests/network/test_inbound.py::", "tests/security/test_addresses.py::"
_OF_HANDSHAKE, _OF_RATE_LIMITS = "tests/network/test_handshake.py::", "tests/properties/test_rate_limits.py::"
_OF_COPIES = "tests/network/test_copies.py::"
_NOT_READING = _OF_SESSIONS + "test_neighbour__does_not_read__queue_is_bounded_and_it_is_dropped"
_ELSEWHERE = _OF_SECURITY + "test_exchange__address_that_means_another_machine_to_each__is_not_believed"

_NO_STRANGER = "muxed.has_session, muxed.is_stranger = True, False"


def _mutant(name: str, breaks: str, edit: Edit, *tests: str) -> Mutant:
    return Mutant(name=name, breaks=breaks, edits=(edit,), detector=Tests(tests))


SESSIONS = (
    _mutant(
        "hello-awaited-for-ever",
        "a stranger that says nothing keeps its connection",
        Edit("sfnode.network.sessions.handshake", "await_hello", "(channel.timings.hello_s)", "(600.0)"),
        _OF_HANDSHAKE + "test_stranger__says_nothing__is_cut_after_hello_s",
    ),
    _mutant(
        "any-run-will-do",
        "a joiner takes the manifest of whichever run the node at its address is in",
        Edit(_FILE_DOWNLOAD, "Download._checked", "if self.wanted.run_id is not None:", "if False:"),
        _OF_HANDSHAKE
        + "test_fetch_manifest__nodes_of_another_run_whatever_they_say__are_refused_and_the_right_one_is_taken",
    ),
    _mutant(
        "strangers-send-long-frames",
        "a stranger's first frame may be as long as a neighbour's",
        Edit(_CHANNEL, "Channel.__init__", "bounds.HELLO_FRAME_BYTES_MAX", "FRAME_BYTES_MAX"),
        _OF_HANDSHAKE + "test_stranger__says_anything_but_hello__is_cut",
    ),
    _mutant(
        "dead-not-noticed",
        "a neighbour that has vanished without a word stays one",
        Edit("sfnode.network.sessions.heartbeat", "Heartbeat.run", "silent_s >= self._timings.dead_s", "False"),
        _OF_SESSIONS + "test_neighbour__silent_after_hello__is_dropped_after_dead_s",
    ),
    _mutant(
        "writes-without-deadline",
        "a neighbour that does not read holds its place for ever",
        Edit(_CHANNEL, "Channel._write", "move_on_after(self.timings.write_s)", "move_on_after(600.0)"),
        _NOT_READING,
    ),
    _mutant(
        "pushes-without-bound",
        "what waits for a neighbour that does not read is kept: memory without end",
        Edit(
            "sfnode.network.sessions.session",
            "SendQueue.put",
            "or self._bytes + len(payload) > bounds.SEND_QUEUE_BYTES_MAX",
            "",
        ),
        "tests/network/test_parts.py::test_send_queue__full__refuses_but_takes_the_last_word",
    ),
    _mutant(
        "first-session-stays",
        "a peer that restarts waits until its dead connection is noticed",
        Edit(_OPEN_SESSIONS, "OpenSessions._gives_way", "return True", "return False"),
        _OF_HANDSHAKE + "test_second_session_of_a_peer__newest_wins__first_is_told",
    ),
    _mutant(
        "events-without-bound",
        "what the node has not read yet grows without end",
        Edit("sfnode.node.event_inbox", "open_inbox", "INBOX_EVENTS_MAX", "10**9"),
        _OF_SESSIONS + "test_events__node_does_not_read_them__sender_waits_and_nothing_is_lost",
    ),
)

RATE_LIMITS = (
    _mutant(
        "bytes-without-rate-limit",
        "a neighbour is read as fast as it sends",
        Edit(_SESSION, "Session.stay_within_rate", "if wait_s > 0:", "if False:"),
        _OF_SESSIONS + "test_neighbour__sends_faster_than_allowed__is_read_more_slowly",
    ),
    _mutant(
        "records-without-rate-limit",
        "a neighbour may have as many signatures checked as its bytes can carry",
        Edit(
            _CONVERSATION,
            "Conversation._receive",
            "rate_limits.pushed_cost_bytes(message, self._run.record_bytes, is_asked_for=is_asked_for)",
            "0",
        ),
        _OF_SESSIONS + "test_neighbour__pushes_more_records_than_allowed__is_read_more_slowly",
    ),
    _mutant(
        "answers-without-rate-limit",
        "the peer that asks most gets most",
        Edit(_CONVERSATION, "Conversation._receive", "if cost := rate_limits.cost_us(message):", "if (cost := 0):"),
        _OF_RATE_LIMITS + "test_requests__greedy_peer_asks_without_end__honest_one_is_served_as_if_alone",
    ),
    _mutant(
        "rate-limits-not-shared",
        "many greedy peers together get all of the core",
        Edit(_RATE_LIMITS, "RateLimits._rate_us_per_s", "bounds.ANSWERS_ALL_US_PER_S / max(1, len(self._here))", "1e9"),
        _OF_RATE_LIMITS + "test_rate_limits__sixty_greedy_peers__together_get_no_more_than_all_may",
    ),
    _mutant(
        "rate-limit-anew-for-each-session",
        "a peer that reconnects has a full budget again",
        Edit(_RATE_LIMITS, "RateLimits.ended", "self._here.discard(peer)", "self._buckets.pop(peer, None)"),
        _OF_RATE_LIMITS + "test_rate_limits__peer_reconnects__finds_its_bucket_as_it_left_it",
    ),
    _mutant(
        "estimate-is-all-that-is-charged",
        "what an answer takes beyond its estimate costs the peer nothing",
        Edit(_RATE_LIMITS, "RateLimits.charge", "max(0.0, taken - booked)", "0.0"),
        _OF_RATE_LIMITS + "test_rate_limits__answers_take_longer_than_booked__what_they_took_is_owed",
    ),
    _mutant(
        "answers-not-measured",
        "an answer that must be read from a slow disk costs no more than one from memory",
        Edit("sfnode.node.running_node", "RunningNode._handle", "seconds=taken_s", "seconds=0.0"),
        "tests/node/test_charges.py::test_daemon__slow_disk__peer_waits_for_what_its_answers_took",
    ),
    _mutant(
        "questions-handed-over-at-once",
        "a peer may have many questions at the node before it is known what the first one takes",
        Edit(_CONVERSATION, "Conversation._receive", "await session.handled.wait()", "pass"),
        _OF_RATE_LIMITS + "test_requests__first_is_not_handled_yet__the_second_is_not_handed_over",
    ),
    _mutant(
        "debt-forgotten-when-idle",
        "a peer that owes for a slow answer waits ten seconds and owes nothing",
        Edit(_RATE_LIMITS, "RateLimits.wait_s", " and each.is_full(rate, now_s)", ""),
        _OF_RATE_LIMITS + "test_rate_limits__peer_owes_for_long__is_not_forgotten_before_it_has_paid",
    ),
)

PLACES = (
    _mutant(
        "places-for-one-network",
        "one network takes all inbound places",
        Edit(
            _OPEN_SESSIONS,
            "OpenSessions.make_place",
            "if not self._origins.has_group_room(",
            "if False and self._origins.has_group_room(",
        ),
        _OF_INBOUND + "test_one_network__dials_in__gets_a_quarter_of_the_places",
    ),
    _mutant(
        "dialled-peers-need-no-place",
        "peers that the node has dialled dial in, and any number of them are inbound neighbours",
        Edit(_OPEN_SESSIONS, "OpenSessions.make_place", "held.is_outbound and", "False and"),
        _OF_INBOUND + "test_full_node__peers_that_it_dialled_dial_in__take_no_places_beyond_the_bound",
    ),
    _mutant(
        "nobody-gives-way",
        "those who came first keep a full node's places, however crowded their network is",
        Edit(_OPEN_SESSIONS, "OpenSessions.make_place", "victim = policy.", "victim = None and policy."),
        _OF_INBOUND + "test_full_node__newcomers_of_other_networks__displace_the_crowd_and_nobody_else",
    ),
    _mutant(
        "useful-not-protected",
        "the neighbour that brought most gives way like any other",
        Edit("sfnode.network.policy.inbound_eviction", "_first_to_go", "useful[:PROTECTED_USEFUL]", "()"),
        _OF_INBOUND + "test_full_node__most_useful_neighbour__keeps_its_place",
    ),
    _mutant(
        "strangers-of-one-network",
        "one network holds all connections that shake hands",
        Edit(_DOORKEEPER, "Doorkeeper.admit", "for each in self._callers) > most:", "for each in ()) > most:"),
        _OF_INBOUND + "test_strangers__of_one_network_say_nothing__the_next_is_cut_and_another_network_is_served",
    ),
    _mutant(
        "handshakes-without-rate-limit",
        "one address keeps a node busy with first words of Noise",
        Edit(_DOORKEEPER, "Doorkeeper.admit", "if caller.crowd is None:", "if True:"),
        _OF_DOORS + "test_handshakes__more_than_the_burst__wait_and_too_many_are_refused",
    ),
    _mutant(
        "silent-sessions-are-no-strangers",
        "whoever opens a session and says nothing does not count among its network's strangers",
        Edit("sfnode.network.transport.host", "Host._accept", "muxed.has_session = True", _NO_STRANGER),
        _OF_DOORS + "test_stranger__has_opened_a_session_stream_and_says_nothing__is_still_one",
    ),
    _mutant(
        "streams-without-rate-limit",
        "a peer opens streams as fast as it likes, one after the other",
        Edit(
            "sfnode.network.transport.stream_guard",
            "StreamGuard.handle",
            "await trio.sleep(wait_s or 0.0)",
            "await trio.sleep(0)",
        ),
        _OF_DOORS + "test_streams__opened_one_after_the_other__wait_beyond_the_burst",
    ),
    _mutant(
        "connections-beyond-open-files",
        "as many connections are taken as elsewhere, however few files may be open",
        Edit("sfnode.network.open_files", "connections_max", "allowed_files() - bounds.FILES_BESIDE", "10**9"),
        _OF_DOORS + "test_sockets__more_silent_ones_than_the_open_files_allow__oldest_of_the_largest_crowd_gives_way",
    ),
    _mutant(
        "file-places-for-one-address",
        "one address holds all places for the manifest, and nobody can join through the node",
        Edit(
            "sfnode.network.policy.limited_places",
            "Places.has_room",
            "self._taken[holder] < self._per_holder_max",
            "True",
        ),
        _OF_PLACES + "test_places__one_address_asks_for_all__gets_two_and_another_address_is_served",
    ),
    _mutant(
        "no-place-for-the-manifest",
        "those who download a basis keep everybody out who wants to join",
        Edit(
            _FILE_SERVER, "FileServer.__init__", "bounds.OBSERVERS_MAX - bounds.MANIFEST_PLACES", "bounds.OBSERVERS_MAX"
        ),
        _OF_PLACES + "test_places__files_take_all_that_they_may__one_is_left_for_the_manifest",
    ),
    _mutant(
        "pings-hold-a-place",
        "a ping now and then is enough to keep a place for the manifest",
        Edit(_FILE_SERVER, "_Observer.send", "if not isinstance(answer, Pong):", "if True:"),
        _OF_PLACES + "test_place__pings_and_asks_for_nothing__is_given_up",
    ),
    _mutant(
        "neighbours-wait-behind-strangers",
        "strangers that hold all places keep neighbours from their files",
        Edit(
            _FILE_SERVER,
            "FileServer.serve_neighbour",
            "stream.take(self._neighbours)",
            "places.enter_context(self._strangers.taken(None))",
        ),
        _OF_PLACES + "test_neighbour__strangers_hold_all_places__gets_its_files_and_no_more_than_it_may",
    ),
    _mutant(
        "short-answers-without-rate-limit",
        "an observer asks for the manifest's last byte as fast as it likes",
        Edit(_FILE_SERVER, "_Observer.send", "if sent_bytes < PART_BYTES_MAX:", "if False:"),
        _OF_PLACES + "test_place__asks_for_the_manifests_last_byte_again_and_again__is_answered_more_slowly",
    ),
    _mutant(
        "own-machine-dialled",
        "a stranger's word makes us dial our own machine",
        Edit(_ADDRESSES, "reachable_addresses", "meant.is_loopback and", "False and"),
        _OF_SECURITY + "test_exchange__this_machine_or_link_from_a_private_address__is_not_believed",
    ),
    _mutant(
        "own-network-dialled",
        "a stranger's word makes us knock at the machines of our own network",
        Edit(_ADDRESSES, "reachable_addresses", "meant.is_inside and", "False and"),
        _OF_SECURITY + "test_exchange__private_address_from_a_stranger__is_not_believed",
    ),
    _mutant(
        "names-of-others-believed",
        "a stranger's host name leads wherever the owner of the domain wants",
        Edit(_ADDRESSES, "believable_addresses", "is_vague and is_of_itself", "False"),
        _OF_SECURITY + "test_exchange__own_host_name_of_the_teller__means_the_address_where_we_see_it",
    ),
    _mutant(
        "names-dialled",
        "a stranger's host name is dialled as it is",
        Edit(_ADDRESSES, "believable_addresses", "elif not is_vague and address.is_of_one_machine:", "else:"),
        _ELSEWHERE,
    ),
    _mutant(
        "unverified-like-the-reached",
        "after a restart an attacker who has filled the book with peers that do not exist gets most of the dials",
        Edit("sfnode.network.policy.outbound_choice", "dial_order", "zip_longest(known, unverified)", "(others,)"),
        "tests/network/test_parts.py::"
        "test_address_book__full_of_peers_never_reached__every_other_dial_is_to_one_that_was",
    ),
)

REPUTATION = (
    _mutant(
        "garbage-forgiven",
        "a peer that sends what no honest node can send comes back at once",
        Edit(
            _OPEN_SESSIONS,
            "OpenSessions.is_discouraged",
            "self._reputation.is_discouraged(peer, trio.current_time())",
            "False",
        ),
        _OF_SESSIONS + "test_drop__discouraged_peer__is_disconnected_and_refused",
    ),
    _mutant(
        "breaker-never-opens",
        "a fault of our own makes us turn all peers away for a day",
        Edit(_REPUTATION, "Reputation._is_breaker_open", "len(self._hit_s) >", "False and len(self._hit_s) >"),
        "tests/properties/test_reputation.py::"
        "test_breaker__many_peers_seem_bad__never_more_than_a_quarter_or_two_are_discouraged",
    ),
    _mutant(
        "strangers-open-the-breaker",
        "an attacker with many keys is spared",
        Edit(_REPUTATION, "Reputation._is_breaker_open", "if peer not in self._met_s:", "if False:"),
        "tests/properties/test_reputation.py::test_breaker__strangers_without_a_session__neither_open_it_nor_are_spared",
    ),
    _mutant(
        "stalling-forgiven",
        "a peer may stall as often as it likes",
        Edit(_SESSION, "Session._write_all", "Fault.STALLED if isinstance(error, StalledError) else None", "None"),
        _OF_REPUTATION + "test_session__peer_stalls_again_and_again__is_discouraged_the_fourth_time",
    ),
    _mutant(
        "silence-forgiven",
        "a stranger may hold connections open in silence as often as it likes",
        Edit(
            _CONVERSATION,
            "Conversation.inbound",
            "self._sessions.penalise(link.peer, Fault.SILENT, str(error))",
            "pass",
        ),
        _OF_REPUTATION + "test_handshake__stranger_says_nothing_four_times__is_discouraged",
    ),
    _mutant(
        "bad-scores-pushed-to",
        "a peer with a bad score is pushed everything all the same",
        Edit(
            _OPEN_SESSIONS,
            "OpenSessions.send",
            "(is_pushed and not self._reputation.is_pushed_to(peer, trio.current_time()))",
            "False",
        ),
        _OF_REPUTATION + "test_push__peer_with_a_bad_score__gets_answers_but_nothing_pushed",
    ),
    _mutant(
        "dialled-peer-forgotten",
        "a full address book forgets the very peer that is being dialled",
        Edit(_BOOK, "AddressBook._forget_worst", " and peer not in in_use", ""),
        _OF_BOOK + "test_address_book__full_and_strangers_are_told_of__what_is_in_use_is_never_forgotten",
    ),
    _mutant(
        "address-never-rests",
        "liars make us dial one address under ever new ids",
        Edit(_BOOK, "AddressBook.dialable", " and self._resting.may_dial(each, now_s)", ""),
        _OF_BOOK + "test_address_book__eight_liars_name_one_address_under_480_ids__it_is_dialled_seven_times_a_minute",
    ),
    _mutant(
        "garbage-leaves-open-beside",
        "a neighbour that answers the negotiation of a stream with garbage ends whoever has asked for it",
        Edit(_HOST, "Host.open_beside", "with Boundary(partial(self._not_opened, link.peer)), trio", "with trio"),
        "tests/network/test_open_beside.py::test_open_beside__neighbour_answers_with_garbage__is_no_stream",
    ),
    _mutant(
        "copies-cost-no-time",
        "a neighbour that sends copies of what lies on the disk has half a core",
        Edit(
            _CONVERSATION,
            "Conversation.handled",
            "0.0 if news else rate_limits.handling_cost_bytes(message, self._run.record_bytes, seconds)",
            "0.0",
        ),
        _OF_COPIES + "test_session__its_copies_took_long__next_is_read_when_that_is_earned",
    ),
    _mutant(
        "pushed-in-one-turn",
        "everybody waits while one message of records is handled",
        Edit(_RATE_LIMITS, "in_turns", "not record_bytes or", "True or"),
        _OF_COPIES + "test_in_turns__pushed_records__are_cut_and_answers_are_not",
    ),
    _mutant(
        "turns-by-number-alone",
        "everybody waits while 32 messages of records are handled",
        Edit("sfnode.node.event_inbox", "next_events", " and sum(map(_bytes_of, events)) < BYTES_TOGETHER", ""),
        _OF_COPIES + "test_inbox__what_takes_long__is_handled_in_a_turn_of_its_own",
    ),
)
