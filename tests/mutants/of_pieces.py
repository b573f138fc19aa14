"""Bugs of a model's pieces: what is taken for right, who may have them, and who is waited for."""

from __future__ import annotations

from tests.mutants.detectors import Tests
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_DOWNLOAD, _NEIGHBOURS = "sfnode.network.sessions.file_download", "sfnode.network.sessions.neighbour_files"
_SERVER = "sfnode.network.sessions.file_server"
_FILES, _DEFINITION = "sfnode.model_files.pieces", "sfnode.model_files.model_cache"
_BOARD, _FETCHER = "sfnode.node.piece_board", "sfnode.node.piece_fetcher"
_PLACES, _FAIR = "sfnode.network.policy.limited_places", "tests/network/test_fair_places.py::"
_FILE, _SEGMENTS = "sfnode.node.snapshot_files", "tests/node/test_file_fetcher.py::"
_REFERENCE, _SHARING = "sfnode.run.model_reference", "sfnode.node.model_sharing"
_MODEL_FETCHER = "sfnode.node.model_fetcher"
_WIRE = "tests/network/test_pieces.py::"
_PARTS = "tests/network/test_file_download.py::"
_TIME = "tests/node/test_piece_fetcher.py::"
_DISK = "tests/node/test_model_fetcher.py::"


def _mutant(name: str, breaks: str, edit: Edit, test: str) -> Mutant:
    return Mutant(name=name, breaks=breaks, edits=(edit,), detector=Tests((test,)))


PIECES = (
    _mutant(
        "any-bytes-are-the-piece",
        "a piece is written whatever its hash is",
        Edit(_DOWNLOAD, "Download._checked", "if self.wanted.sha256 is not None and", "if False and"),
        _WIRE + "test_liar__piece_is_not_what_its_hash_says__is_refused_by_name_and_the_session_ends",
    ),
    _mutant(
        "one-false-part-each-time",
        "one node that gives a joiner a false part at each try keeps a file away for ever",
        Edit(_DOWNLOAD, "Download.run", "if self._is_whole_of_one:", "if False:"),
        _PARTS + "test_fetch_basis__first_peer_spoils_each_try_with_one_part__comes_from_the_second_alone",
    ),
    _mutant(
        "crawling-node-is-never-left",
        "a joiner takes a file from a node that gives a part every ten seconds, although it knows another",
        Edit(_DOWNLOAD, "Download.run", "self.bytes_per_s_min * (", "0.0 * ("),
        _PARTS + "test_fetch_basis__first_peer_crawls__the_second_goes_on_soon",
    ),
    _mutant(
        "liar-stays",
        "a neighbour that sends wrong pieces is asked for more of them",
        Edit(_NEIGHBOURS, "NeighbourFiles.asking", "self._open_sessions.penalise(", "str("),
        _WIRE + "test_liar__piece_list_of_another_length__is_refused_and_the_session_ends",
    ),
    _mutant(
        "strangers-get-the-model",
        "whoever finds a node's address downloads the model from it",
        Edit(_SERVER, "FileServer.serve_stranger", "self._run.find_file(", "self._run.find_piece("),
        _WIRE + "test_piece__stranger_asks__gets_none",
    ),
    _mutant(
        "one-neighbour-takes-all-places",
        "a neighbour that opens many streams keeps others from the model",
        Edit(_PLACES, "FairPlaces.take", "self._per_holder_max", "1_000"),
        _WIRE + "test_pieces__one_neighbour_wants_many_streams__gets_two_and_room_for_other_files_is_left",
    ),
    _mutant(
        "first-come-keeps-the-place",
        "neighbours that came first hold all places for pieces, and nobody else gets one",
        Edit(_PLACES, "FairPlaces.take", "self._victim(place, now_s)", "None"),
        _WIRE + "test_pieces__others_hold_all_places__who_has_none_gets_one_and_they_keep_half_of_theirs",
    ),
    _mutant(
        "slow-takers-are-never-done",
        "eight neighbours that each take a little hold all places for ever",
        Edit(_PLACES, "FairPlaces._victim", "self._unfinished_turn_s", "float('inf')"),
        _FAIR + "test_places__eight_crawl__who_has_had_less_gets_one_after_a_minute",
    ),
    _mutant(
        "lost-place-goes-on",
        "who has lost its place is served on, and twice as many files flow as may",
        Edit(_SERVER, "_FileStream.check", "if place.is_lost:", "if False:"),
        _WIRE + "test_pieces__others_hold_all_places__who_has_none_gets_one_and_they_keep_half_of_theirs",
    ),
    _mutant(
        "given-without-limit",
        "what the operator allows to be given is not kept to",
        Edit(_SERVER, "serve_files", "isinstance(file, PacedFile)", "False"),
        _WIRE + "test_pieces__given_at_a_rate__all_streams_together_keep_to_it",
    ),
    _mutant(
        "first-node-locks-the-second-out",
        "of two nodes that fill one model cache, the slower one fails although the model is whole",
        Edit(_FILES, "PartialFile.write", "if not self._path.exists():", "if True:"),
        _DISK + "test_fetch__two_nodes_fill_one_cache_at_two_paces__both_have_it_and_neither_complains",
    ),
    _mutant(
        "disk-is-not-looked-at",
        "a model of terabytes is fetched until the disk is full, and the ledger has no room either",
        Edit(_MODEL_FETCHER, "_lack_of_room", "needed <= free", "True"),
        _DISK + "test_fetch__more_than_the_disk_has_room_for__is_said_with_both_sizes_and_nobody_is_asked",
    ),
    _mutant(
        "all-pieces-on-one-board",
        "a manifest of three files of a tebibyte takes 700 MB of a node's memory",
        Edit(_MODEL_FETCHER, "ModelFetcher._fetch_some", "islice(to_come, _ASKED_TOGETHER)", "to_come"),
        _DISK + "test_fetch__three_files_of_the_largest_size__memory_stays_within_what_is_stated",
    ),
    _mutant(
        "staller-waited-for-ever",
        "who takes a question and says nothing keeps its piece",
        Edit(_BOARD, "PieceBoard.take", "else self._overdue(peer, now_s)", "else None"),
        _TIME + "test_pieces__one_stalls__its_pieces_come_from_others_in_a_time_that_follows_the_pace",
    ),
    _mutant(
        "everybody-asked-for-the-last-piece",
        "a slow piece is asked of all neighbours at once",
        Edit(_BOARD, "PieceBoard.take", "len(asked) >= ASKED_MAX", "False"),
        _TIME + "test_board__piece_takes_too_long__a_second_one_is_asked_and_a_third_instead_of_the_first",
    ),
    _mutant(
        "equally-slow-neighbours-take-turns-for-ever",
        "a piece goes from one slow neighbour to the next, and comes from none",
        Edit(_BOARD, "PieceBoard._overdue", " * 2 ** self._lost[piece, other]", ""),
        _TIME + "test_board__all_are_slow__each_has_twice_the_time_at_its_next_turn",
    ),
    _mutant(
        "eight-slow-givers-keep-their-places",
        "an honest neighbour is asked for nothing as long as eight crawl",
        Edit(_FETCHER, "PieceFetcher._ask_neighbours", "self._make_room(fetching, ready)", "pass"),
        _TIME + "test_pieces__eight_slow_ones_come_first__the_honest_ninth_is_asked_soon",
    ),
    _mutant(
        "nobody-new-is-tried",
        "eight that slow down little by little keep their places",
        Edit(_FETCHER, "PieceFetcher._make_room", "self._tried.issuperset(waiting)", "True"),
        _TIME + "test_pieces__eight_take_longer_each_time__one_that_has_not_been_tried_gets_a_place",
    ),
    _mutant(
        "slow-ones-first-again",
        "neighbours that lost their place are asked first at the next basis",
        Edit(
            _FETCHER, "PieceFetcher._ask_neighbours", ", self._known.losses[peer], peer not in self._known.givers", ""
        ),
        _SEGMENTS + "test_file__next_one_is_wanted__those_who_crawled_are_asked_last",
    ),
    _mutant(
        "liar-among-segments-stays",
        "a neighbour gives false segments of each basis, and stays",
        Edit(_FILE, "FileFetcher.fetch", "self._sources.gave_false_bytes(liar, wanted.name)", "pass"),
        _SEGMENTS + "test_file__liar_is_honest_when_asked_for_all__its_segments_show_it",
    ),
    _mutant(
        "one-liar-keeps-a-file-away",
        "a file of which one segment is false is thrown away, again and again",
        Edit(_FILE, "FileFetcher.fetch", "await self._fetch_from_one(wanted)", "None"),
        _SEGMENTS + "test_file__one_lies__the_right_file_comes_and_the_liar_is_caught",
    ),
    _mutant(
        "lost-pieces-stay-lost",
        "what a neighbour that left was asked for is asked of nobody else",
        Edit(_BOARD, "PieceBoard.failed", "self._missing.appendleft(piece)", "pass"),
        _TIME + "test_pieces__all_leave_in_the_middle__goes_on_when_one_comes",
    ),
    _mutant(
        "no-rest-for-those-without",
        "neighbours that lack the model are asked all the time",
        Edit(_FETCHER, "PieceFetcher._rest", "2 * last.pause_s", "0.0"),
        _TIME + "test_pieces__neighbour_has_none_yet__is_asked_again_more_and_more_rarely",
    ),
    _mutant(
        "owner-is-not-asked",
        "a node gives files of a model whose owner forbids it",
        Edit(_SHARING, "share_model", "spec.sharing is not Sharing.PEERS or ", ""),
        "tests/node/test_model_sharing.py::test_sharing__owner_or_operator_forbids_it__gives_nothing",
    ),
    _mutant(
        "taken-against-the-owners-will",
        "a node asks for files of a model whose owner forbids it",
        Edit(_REFERENCE, "may_fetch", "manifest.model.sharing is Sharing.PEERS and ", ""),
        _DISK + "test_finder__owner_or_operator_forbids_it__nobody_is_asked",
    ),
    _mutant(
        "own-file-taken-on-trust",
        "a file that has changed since is given, and the honest node is cut for a liar",
        Edit(_FILES, "PieceIndex.find", "return piece if is_right else None", "return piece"),
        "tests/node/test_model_sharing.py::test_pieces__file_changes_after_it_was_looked_at__what_changed_is_not_given",
    ),
    _mutant(
        "old-pieces-taken-on-trust",
        "what an earlier life has written is not looked at again",
        Edit(_FILES, "PartialFile.missing", "if digest != self.hash_of(number)", "if False"),
        _DISK + "test_fetch__a_piece_of_an_earlier_life_is_damaged__that_one_comes_again",
    ),
    _mutant(
        "manifest-names-any-file",
        "a stranger's manifest puts programs into the folder that a model is loaded from",
        Edit(_DEFINITION, "FetchedModel.check_names", "if unknown:", "if False:"),
        _DISK + "test_fetch__manifest_names_what_is_no_part_of_a_model__is_refused",
    ),
)
