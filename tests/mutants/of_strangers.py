"""Guards against strangers at a node's doors: its page, its metrics, the local network, and what is left unread."""

from __future__ import annotations

from tests.mutants.detectors import Tests
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_CALLERS, _WEB, _METRICS = "sfnode.http_guard", "sfnode.web.access_and_headers", "sfnode.metrics"
_PACKETS, _ROSTER = "sfnode.network.discovery.mdns_packets", "protocol.ledger.roster"
_OF_STRANGERS, _OF_METRICS = "tests/web/test_strangers.py::", "tests/metrics/test_metrics_server.py::"


def _mutant(name: str, breaks: str, edit: Edit, *tests: str) -> Mutant:
    return Mutant(name=name, breaks=breaks, edits=(edit,), detector=Tests(tests))


_PATCHES, _YAMUX, _HOST = (
    "sfnode.network.transport.libp2p_patches",
    "sfnode.network.transport.bounded_yamux",
    "sfnode.network.transport.host",
)
_OF_NEGOTIATION = "tests/network/test_negotiation.py::"

NEGOTIATION = (
    _mutant(
        "lines-without-end",
        "a peer makes a node keep a line of a negotiation of any length",
        Edit(_PATCHES, "patch_library", "    multiselect_communicator.read_delim = _read_line\n", ""),
        _OF_NEGOTIATION + "test_line__longer_than_any_honest_one__is_refused_before_it_is_read",
    ),
    _mutant(
        "lines-of-any-length",
        "the bound of a line is not looked at",
        Edit(_PATCHES, "_read_line", "if size > bounds.NEGOTIATION_LINE_BYTES_MAX:", "if False:"),
        _OF_NEGOTIATION + "test_line__longer_than_any_honest_one__is_refused_before_it_is_read",
    ),
    _mutant(
        "failed-negotiations-stay",
        "after 256 negotiations that failed a node opens no stream to that peer any more",
        Edit(_HOST, "Host._open_stream", "await link.reset()", "pass"),
        _OF_NEGOTIATION + "test_open_beside__negotiations_that_fail__leave_no_stream_behind",
    ),
    _mutant(
        "cancelled-openings-stay",
        "a stream whose opening is cancelled keeps its place",
        Edit(_YAMUX, "BoundedYamux.open_stream", "await self.forget(stream)", "pass"),
        _OF_NEGOTIATION + "test_open_stream__cancelled_before_its_turn__leaves_nothing_behind",
    ),
    _mutant(
        "unread-bytes-stay",
        "a stream that was given up keeps what nobody has read of it",
        Edit(_YAMUX, "WindowedStream.reset", "await self.conn.forget(self)", "pass"),
        _OF_NEGOTIATION + "test_reset__unread_bytes_and_a_reader_that_waits__both_are_let_go",
    ),
    _mutant(
        "answered-questions-stay",
        "a stream on which a peer was asked how it sees us is never given back",
        Edit(_HOST, "Host.ask_reach", "await stream.reset()", "pass"),
        _OF_NEGOTIATION + "test_ask_reach__answered__its_stream_is_given_back",
    ),
)

_GGUF, _VIEW, _LOADING = (
    "sfnode.training.conversion.gguf_header",
    "sfnode.training.model.safe_model_files",
    "sfnode.training.model.loading",
)
_OF_BOMBS = "tests/security/test_bombs.py::"

BOMBS = (
    _mutant(
        "bytes-of-many-tensors",
        "a GGUF file of a megabyte may take, and become, a hundred gigabytes",
        Edit(_GGUF, "_Walk.run", "if begin < taken:", "if False:"),
        _OF_BOMBS + "test_gguf__two_tensors_that_overlap_by_a_byte__are_refused",
    ),
    _mutant(
        "endless-layers-named",
        "a config.json with two thousand million layers fills the memory with a list of them",
        Edit(_VIEW, "check_configs", "value > PARTS_MAX", "False"),
        _OF_BOMBS + "test_config__endless_layers_in_a_part_of_it__are_refused",
    ),
    _mutant(
        "endless-layers-made",
        "a model of endless layers is made for ever, if the field has a name of its own",
        Edit(_LOADING, "_counted", "if count > PARTS_MAX:", "if False:"),
        _OF_BOMBS + "test_config__more_parts_than_any_model__stop_being_made",
    ),
    _mutant(
        "archives-before-limits",
        "an archive of directory entries is read before the process has its limits",
        Edit(
            "sfnode.training.conversion.from_pickles",
            "convert_pickles",
            "    total = sum(file.stat().st_size for file in files)\n",
            "    [_check_archive(file) for file in files]\n    total = sum(file.stat().st_size for file in files)\n",
        ),
        _OF_BOMBS + "test_pickle__archive_of_directory_entries_alone__is_read_within_the_limits",
    ),
)

DOORS = (
    _mutant(
        "strangers-never-make-room",
        "whoever comes first with half a request holds a place of the page, and the rest are served late or not at all",
        Edit(_CALLERS, "Strangers._make_room", "oldest.scope.cancel()", "pass"),
        _OF_STRANGERS + "test_places__one_origin_has_its_part__its_own_oldest_makes_room",
    ),
    _mutant(
        "any-origin-makes-room",
        "one machine with many connections ends those of all others",
        Edit(
            _CALLERS,
            "Strangers._make_room",
            "origin = origins.most_common(1)[0][0]",
            "origin = self._waiting[0].origin",
        ),
        _OF_STRANGERS + "test_places__all_are_taken__the_oldest_of_the_most_crowded_origin_makes_room",
    ),
    _mutant(
        "each-ipv6-address-an-origin",
        "one machine with an IPv6 network counts as a new one with each connection",
        Edit(_CALLERS, "_origin", "isinstance(address, ipaddress.IPv6Address)", "False"),
        _OF_STRANGERS + "test_places__one_origin_has_its_part__its_own_oldest_makes_room",
    ),
    _mutant(
        "half-requests-for-ever",
        "a connection that says half a request stays",
        Edit(_CALLERS, "Strangers.place", "trio.current_time() + PATIENCE_S", 'float("inf")'),
        _OF_STRANGERS + "test_place__patience_is_over__ends_unless_the_stranger_was_recognised",
    ),
    _mutant(
        "viewers-stay-strangers",
        "a browser that has shown the token makes room for strangers",
        Edit(_WEB, "Gate.__call__", 'self._recognise(scope["client"])', "pass"),
        _OF_STRANGERS + "test_viewer__has_shown_the_token__strangers_do_not_displace_it",
    ),
    _mutant(
        "pages-in-http-2",
        "a stranger changes to HTTP/2, and what fails in its frames is counted as a bug of ours",
        Edit("sfnode.web.server", "_PageServer.__setattr__", "isinstance(value, ProtocolWrapper)", "False"),
        "tests/web/test_server.py::test_connection__stranger_asks_for_more_than_http_1_or_in_advance__is_no_slip_of_ours",
    ),
    _mutant(
        "metrics-under-any-name",
        "a page of another site reads a node's figures through a name that leads to this machine",
        Edit(_METRICS, "_Server._response_to", "not (self._is_open or is_name_of_ours(host))", "False"),
        _OF_METRICS + "test_server__asked_for_something_else__refuses",
    ),
    _mutant(
        "metrics-without-a-boundary",
        "one request that meets a bug ends the server of the metrics",
        Edit(
            _METRICS,
            "_Server.answer",
            'self._slips.contained("a request for the metrics", endings=()), suppress',
            "suppress",
        ),
        _OF_METRICS + "test_server__one_request_meets_a_bug__is_counted_and_the_next_is_answered",
    ),
    _mutant(
        "endless-pointers",
        "a packet of the local network costs as much as three hundred",
        Edit(_PACKETS, "_Reader._name", " or self._pointers > bounds.MDNS_POINTERS_MAX", ""),
        "tests/network/test_mdns.py::test_packets__a_chain_of_pointers__is_followed_for_so_many_and_no_more",
    ),
    _mutant(
        "old-exclusions-remembered",
        "an exclusion that comes later is not seen",
        Edit(_ROSTER, "Roster._put", "self._excluded = None", "pass"),
        "tests/protocol/test_roster.py::test_roster__asked_again_and_nothing_has_changed__makes_no_new_answer",
    ),
)

_RUNNING, _OF_TURNS = "sfnode.node.running_node", "tests/node/test_turns.py::"
_RATE_LIMITS = "sfnode.network.policy.rate_limits"

TURNS = (
    _mutant(
        "read-back-before-stored",
        "an author who is admitted anew loses the records of the same turn, and of the node's own nobody has a copy",
        Edit(_RUNNING, "RunningNode._handle", "if is_submitted or (isinstance(event", "if False and (isinstance(event"),
        _OF_TURNS + "test_turn__author_is_suspended_and_admitted_again__has_the_record_of_the_same_turn",
    ),
    _mutant(
        "own-disk-held-against-a-peer",
        "a neighbour whose message met a failing disk of this node is discouraged for a day",
        Edit(_RUNNING, "RunningNode._handle_one", " and not isinstance(error, (*ENDINGS, MemoryError))", ""),
        _OF_TURNS + "test_turn__message_meets_a_fault_of_this_node__peer_is_avoided_unless_a_person_must_act",
    ),
    _mutant(
        "answers-cost-nothing",
        "whoever answers a node's own questions may have a whole core of it",
        Edit(
            "sfnode.network.policy.rate_limits",
            "handling_cost_bytes",
            "cost_us(message)",
            "not isinstance(message, wire.Records)",
        ),
        "tests/network/test_copies.py::test_answers__name_what_must_be_read_back__are_paid_like_copies",
    ),
)
