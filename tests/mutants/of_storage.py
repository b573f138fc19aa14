"""Bugs of what the daemon does with effects, and of the store. The simulation's host and disk stand in for both."""

from __future__ import annotations

from tests.mutants.detectors import Simulation, Tests
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_HOST, _STORE, _REPLAY = "tests.simulation.host", "sfnode.storage.record_store", "sfnode.storage.stored_records"
_FOLDER = "sfnode.storage.exclusive_folder"
_FOLDER_TESTS = "tests/storage/test_exclusive_folder.py::"

STORAGE = (
    Mutant(
        name="no-fsync-before-send",
        breaks="the daemon does not wait for the disk before it sends the node's own update",
        edits=(Edit(_HOST, "Host._store", "is_durable=effect.is_own", "is_durable=False"),),
        detector=Simulation("an own update was lost"),
    ),
    Mutant(
        name="sent-before-stored",
        breaks="the daemon sends first and writes afterwards",
        edits=(
            Edit(
                _HOST,
                "Host._carry_out",
                "for effect in effects:",
                "for effect in sorted(effects, key=lambda effect: not isinstance(effect, SendMessage)):",
            ),
        ),
        detector=Simulation("sent and is not durable"),
    ),
    Mutant(
        name="reservation-after-estimate",
        breaks="the daemon starts the worker before it makes the step durable",
        edits=(
            Edit(
                _HOST,
                "Host._carry_out",
                "for effect in effects:",
                "for effect in sorted(effects, key=lambda effect: isinstance(effect, ReserveStep)):",
            ),
        ),
        detector=Simulation("estimated twice"),
    ),
    Mutant(
        name="reservation-not-durable",
        breaks="a reservation is written and not synced: a power cut takes it back",
        edits=(Edit("tests.simulation.disk", "Disk.reserve", "    self._sync()\n", ""),),
        detector=Simulation("estimated twice", first=200),
    ),
    Mutant(
        name="horizon-at-replay",
        breaks="the own disk is read under the horizon: records far ahead are lost by a restart",
        edits=(Edit(_REPLAY, "_replay_one", "replica.add(record)", "replica.add(record, horizon_step=8)"),),
        detector=Simulation("the ledger holds other records"),
    ),
    Mutant(
        name="damaged-record-passed-over",
        breaks="a stored record that does not verify is left out in silence",
        edits=(Edit(_REPLAY, "replay", 'raise damaged(path, f"record {arrival}: {reject}") from None', "continue"),),
        detector=Simulation("the ledger holds other records"),
    ),
    Mutant(
        name="name-that-can-be-foreseen",
        breaks="a key is written through a file that others have put there, in a folder that they can write",
        edits=(Edit("sfnode.storage.disk", "_replace", "{os.getpid():08x}{secrets.token_hex(4)}", "{os.getpid()}"),),
        detector=Tests(
            (
                "tests/storage/test_disk.py::"
                "test_write_durably__file_or_link_waits_under_the_name_with_our_process_id__is_not_written_to",
            )
        ),
    ),
    Mutant(
        name="key-that-others-read",
        breaks="a key that every user of the machine can read is used all the same",
        edits=(Edit("sfnode.storage.key_file", "_read_secret", "held.st_mode & 0o077", "False"),),
        detector=Tests((_FOLDER_TESTS + "test_load_seed__key_that_others_can_read_or_write__is_refused",)),
    ),
    Mutant(
        name="key-of-another-user",
        breaks="a key that another user has put there signs the run",
        edits=(Edit("sfnode.storage.key_file", "_read_secret", "held.st_uid != os.geteuid()", "False"),),
        detector=Tests((_FOLDER_TESTS + "test_load_seed__key_of_another_user__is_refused",)),
    ),
    Mutant(
        name="files-of-others-in-the-folder",
        breaks="a data directory is used in which another user has left a file",
        edits=(Edit(_FOLDER, "ExclusiveFolder.check", "if _is_foreign(path):", "if False:"),),
        detector=Tests((_FOLDER_TESTS + "test_claim__another_users_file_in_it__is_named",)),
    ),
    Mutant(
        name="lock-that-others-open",
        breaks="any user of the machine can lock the data directory, and the node does not start",
        edits=(Edit(_FOLDER, "ExclusiveFolder.lock", "    self.claim()\n", "    self.path.mkdir()\n"),),
        detector=Tests((_FOLDER_TESTS + "test_store__new_directory__nobody_else_can_enter_it_or_open_its_lock",)),
    ),
    Mutant(
        name="store-without-fsync",
        breaks="SQLite is never told to wait for the disk",
        edits=(Edit(_STORE, "Store._transaction", "{'FULL' if is_durable else 'NORMAL'}", "NORMAL"),),
        detector=Tests(
            ("tests/storage/test_store.py::test_store__own_records__are_committed_with_fsync_and_others_without",)
        ),
    ),
    Mutant(
        name="status-file-ends-the-node",
        breaks="a node ends because its status file cannot be written, be it for want of open files",
        edits=(
            Edit(
                "sfnode.node.watching.node_watch",
                "StatusFile.write",
                "except OperatorError as error:",
                "except ZeroDivisionError as error:",
            ),
        ),
        detector=Tests(
            (
                "tests/node/test_status_file.py::"
                "test_status_file__cannot_be_written__is_said_once_and_once_more_when_it_can",
            )
        ),
    ),
)
