"""Every bound and waiting time of the network, each with its reason. Those of the wire: ``protocol/limits.py``."""

from __future__ import annotations

from typing import Final

from protocol.framing import LENGTH_BYTES
from protocol.limits import FRAME_BYTES_MAX, PULL_BYTES_MAX

# --- frames ---------------------------------------------------------------------------------------------------
HELLO_FRAME_BYTES_MAX: Final = 1_024  # a stranger may make us buffer this much before it has said who it is
READ_BYTES_MAX: Final = FRAME_BYTES_MAX + LENGTH_BYTES  # one read takes all that a full frame needs
WRITE_BYTES_MAX: Final = FRAME_BYTES_MAX + LENGTH_BYTES  # frames joined into one write: writes cost, not bytes
SEND_QUEUE_BYTES_MAX: Final = 262_144  # unsent bytes per neighbour; beyond it send() is False, anti-entropy cures it

# --- what one neighbour may cost us -----------------------------------------------------------------------------
RECEIVE_BYTES_PER_S: Final = 2_000_000  # 16,000 records per second; above it we pause reading that peer
RECEIVE_BURST_BYTES: Final = 4_000_000  # two seconds' worth: a page of 8,192 records is never delayed
FRAME_COST_BYTES: Final = 400  # a frame counts as this many bytes more: 5,000 empty frames per second
PUSHED_RECORD_COST_BYTES: Final = 1_000  # of a record that nobody asked for: 2,000 per second, 4,000 at once
PUSHED_RECORD_S: Final = 55e-6  # what such a record usually takes: a signature check; 0.11 of a core per neighbour
PUSHED_TOGETHER: Final = 64  # records that the node handles in one turn: 4 ms, or 20 where each is read from the disk
OWED_BYTES_MAX: Final = 4 * PULL_BYTES_MAX  # answers to questions that were asked again may come late, all at once
ANSWERS_US_PER_S: Final = (
    60_000  # answers to one peer: 24 pulls or 13 pages of authors per second, more than it can verify
)
ANSWERS_BURST_US: Final = 60_000  # one second's worth; a joiner's first questions are never delayed
ANSWERS_ALL_US_PER_S: Final = 400_000  # answers to all: the rest of the core is for the flood and the node's own steps
ANSWERS_IDLE_S: Final = 10.0  # a bucket untouched for this long is full again, also when 36 peers share
ANSWER_US_MAX: Final = 600_000  # charged for one answer: paid off in 10 s, in 54 when 36 share, well before DEAD_S
OBSERVER_BYTES_MAX: Final = 4 << 20  # four copies of the largest manifest per observer; and the basis once
PEERS_ANSWER_INTERVAL_S: Final = 0.5  # a peer list costs 300 us; questions that come faster are left unanswered

# --- yamux: enforced by the patches -------------------------------------------------------------------------------
STREAM_WINDOW_BYTES: Final = 262_144  # yamux's own start value, never grown: 2.6 MB/s at a round trip of 100 ms
YAMUX_CHUNK_BYTES_MAX: Final = 65_507  # chunk + 12 (yamux header) = 65,519, the largest plaintext of one Noise message
CONNECTION_BUFFER_BYTES_MAX: Final = 1 << 19  # all unread bytes of one connection; 2 MiB of a peer with four of them
FRAMES_PER_S: Final = 10_000.0  # Noise messages and frames of one connection, at 5 us: 5,000 small writes per second
FRAMES_BURST: Final = 2_000.0
CONTROL_FRAME_COST: Final = 100.0  # frames: what the library handles takes it 0.2 ms, the start of a stream 0.5 ms
SMALL_READ_COST: Final = 10.0  # frames: waking up for little takes 50 us; whoever has to wait sends more at once
SMALL_READ_BYTES: Final = 1_024
STRANGER_FRAMES_PER_S: Final = 1_000.0  # before hello

# --- connections ------------------------------------------------------------------------------------------------
CONNECTIONS_MAX: Final = 256  # and fewer where the system does not allow that many open files
CONNECTIONS_PER_PEER_MAX: Final = 4  # dials from both ends at once, and a restart while the old connection hangs
OPEN_FILES: Final = 4_096  # asked of the system at the start; macOS gives 256 unless asked
FILES_BESIDE: Final = 96  # of them for all but inbound connections: libraries, store, worker, and what we dial
STRANGERS_PER_GROUP_MAX: Final = 16  # connections of one network that have not said who they are
STRANGERS_PER_ADDRESS_MAX: Final = 64  # of one private address: test networks of some dozen nodes start at once
HANDSHAKES_PER_S: Final = 5.0  # of one network, or private address; with all that may follow each takes 20 ms
HANDSHAKES_BURST: Final = 64
HANDSHAKE_WAIT_S: Final = 5.0  # a connection that would wait longer is closed: its dialler gives up at DIAL_S
INBOUND_STREAMS_PER_PEER_MAX: Final = 16  # one session, one identify, one ping, and room for observers
STREAMS_PER_S: Final = 1.0  # that one peer opens; each takes 2 ms, and js-libp2p opens one for each ping
STREAMS_BURST: Final = 8  # identify, identify-push, session, ping, files, reach
PINGS_PER_S: Final = 1.0  # answered on one stream of /ipfs/ping/1.0.0
PINGS_BURST: Final = 8
PING_IDLE_S: Final = 60.0  # libraries ping every 10 or 15 s, and leave the stream open
FIRST_SESSION_S: Final = 15.0  # an accepted connection that opened no session by then is closed
MEMORY_BYTES_MAX: Final = 512 << 20  # of this process, beside the run's coefficients; more: inbound neighbours go
MEMORY_AGAIN_PERCENT: Final = 90  # of it: below that newcomers are let in again, so that nobody goes in and out
MEMORY_LOOK_S: Final = 5.0  # one goes at each look: all 28 within two and a half minutes
OBSERVERS_MAX: Final = 8  # strangers that fetch manifest or basis at the same time
OBSERVERS_PER_CROWD_MAX: Final = 2  # of one network, or private address
MANIFEST_PLACES: Final = 1  # of them for the manifest only: it takes milliseconds, a basis minutes
OBSERVER_IDLE_S: Final = 8.0  # without a request; at 20 kB/s a part takes 1.6 s, one dial back for the doctor 5 s
SHORT_ANSWERS_PER_S: Final = 20.0  # to one observer, of less than a part: whole ones are bounded by their bytes
SHORT_ANSWERS_BURST: Final = 64
NEIGHBOURS_SERVED_MAX: Final = 16  # files that neighbours fetch at the same time, beside those of strangers
NEIGHBOURS_GIVEN_MAX: Final = 8  # of them for pieces of the model: four neighbours, which give to others soon
FILES_PER_NEIGHBOUR_MAX: Final = 4  # a basis, a snapshot, and two streams for the pieces of the model
PIECE_STREAMS_PER_NEIGHBOUR_MAX: Final = 2  # while one piece ends, the other flows
TURN_S: Final = 10.0  # a neighbour has had its turn, if it has a whole piece and others wait
UNFINISHED_TURN_S: Final = 60.0  # and without one: a piece at 17 kB/s
OBSERVER_S: Final = 60.0  # enough for the largest manifest at 20 kB/s
OBSERVER_BYTES_PER_S_MIN: Final = 50_000  # of a basis, after that minute: who is slower dials again and goes on
LEAST_PACE_S: Final = 10.0  # a joiner leaves a slow node after this, if it knows another
PARTS_AHEAD_MAX: Final = 8  # of a basis, asked for at once: a stream's window
PIECE_PARTS_AHEAD: Final = 4  # of a model's piece: the window of one stream, shared by both

# --- waiting times ----------------------------------------------------------------------------------------------
DIAL_S: Final = 15.0  # name lookup, TCP, Noise, Yamux and protocol negotiation of one address
HELLO_S: Final = 10.0  # the first frame of the other side
PING_INTERVAL_S: Final = 30.0  # below the idle time-outs of common NAT boxes
DEAD_S: Final = 120.0  # four pings unanswered
NEGOTIATION_LINE_BYTES_MAX: Final = 1_024  # names of protocols; ours have 20 bytes
WRITE_S: Final = 20.0  # one stream write; a healthy but slow link (25 kbit/s) still manages 64 KiB
BYE_S: Final = 0.7  # how long a polite end waits for the other side's end of stream
CLOSE_S: Final = 0.5  # closing one connection; takes milliseconds
STOP_S: Final = 1.8  # the whole network, so that the daemon ends within 5 s
SIMULTANEOUS_S: Final = 25.0  # sessions closer together than one dial and one hello were dialled from both ends at once

# --- overlay ----------------------------------------------------------------------------------------------------
DIALS_AT_ONCE_MAX: Final = 4
UPKEEP_INTERVAL_S: Final = 1.0  # how often missing neighbours are looked for; events wake it earlier
EXCHANGE_INTERVAL_S: Final = 300.0  # a peer list is asked for this often when all is well
EXCHANGE_START_S: Final = 1.0  # and a new neighbour after this, then twice as long, ...: it may be new itself
PEERS_PER_ANSWER_MAX: Final = 32
BACKOFF_START_S: Final = 1.0
BACKOFF_MAX_S: Final = 600.0  # a peer that is down is tried about every five minutes
BACKOFF_BOOTSTRAP_MAX_S: Final = 60.0  # a bootstrap that is down about every half minute, for ever: joiners wait for it
BOOTSTRAP_CHECK_S: Final = 600.0  # one more dial to a bootstrap when we have enough neighbours: islands merge again
REFUSED_S: Final = 60.0  # not redialled sooner after a polite refusal ("full")
WRONG_RUN_S: Final = 3_600.0  # nor after "other run" or "other version": that does not change by itself

# --- reputation: what is held against a peer -----------------------------------------------------------------------
SCORE_HALF_LIFE_S: Final = 600.0  # a laptop that slept through a write is forgiven before it sleeps again
SCORE_NOT_PUSHED: Final = -20.0  # it gets nothing pushed; it can still ask
SCORE_DISCOURAGED: Final = -50.0  # its session ends, and it is neither dialled nor accepted
DISCOURAGED_S: Final = 24 * 3_600.0  # for this long
DISCOURAGED_MAX: Final = 1_024  # remembered misbehaving peers; beyond it the one that ends first is forgotten
SCORES_MAX: Final = 1_024  # peers with a score; beyond it the one closest to zero is forgotten
BREAKER_S: Final = 600.0  # peers that were discouraged and peers that were met are counted for this long
SPARED_S: Final = 60.0  # a peer that the breaker spared is kept away no longer than one that was refused politely
BREAKER_FREE: Final = 2  # this many may always be discouraged: a quarter of three neighbours is less than one
BREAKER_PART: Final = 4  # more than a quarter of the peers met cannot all be bad: then the fault is ours

# --- being dialled back: a question that `sfnode doctor` asks --------------------------------------------------------
REACH_ANSWER_S: Final = 10.0  # the question, one dial, the answer
REACH_DIAL_S: Final = 5.0  # a TCP connection that takes longer is useless to everybody
REACH_INTERVAL_S: Final = 10.0  # between dials to one address: it learns no more about its own network than it may know
REACH_AT_ONCE_MAX: Final = 4
REACH_ADDRESSES_MAX: Final = 256  # asked within the interval; beyond it nobody is dialled

# --- a port of the router ------------------------------------------------------------------------------------------
MAPPING_LEASE_S: Final = 3_600  # a node that was killed leaves its mapping for no longer
MAPPING_RENEW_S: Final = 1_200.0  # two renewals may fail
MAPPING_DISCOVER_MS: Final = 1_000  # routers answer within milliseconds
MAPPING_CLOSE_S: Final = 1.0  # one question to the router, at the end of the node
MAPPING_TRIES: Final = 4  # ports outside, the node's own first

# --- finding peers on the local network -----------------------------------------------------------------------------
MDNS_PACKET_BYTES_MAX: Final = 1_500  # of one Ethernet frame: ours have 300
MDNS_RECORDS_MAX: Final = 32  # in one packet; printers announce a dozen
MDNS_LABELS_MAX: Final = 16  # of one name; ours have four
MDNS_POINTERS_MAX: Final = 64  # followed in one packet: two for each record; ours have none, printers one a record
MDNS_ADDRESSES_MAX: Final = 4  # in one packet
MDNS_PACKET_S: Final = 0.01  # at most 100 packets a second are looked at: 0.5 % of a core
MDNS_ANSWER_INTERVAL_S: Final = 1.0  # RFC 6762, 6: one answer a second
MDNS_QUERY_START_S: Final = 2.0  # the first question goes out at once, the next after this, then twice as long, ...
MDNS_QUERY_MAX_S: Final = 120.0

# --- address book -----------------------------------------------------------------------------------------------
KNOWN_PEERS_MAX: Final = 1_000
ADDRESSES_PER_PEER_MAX: Final = 8
ADDRESSES_RESTING_MAX: Final = (
    1_024  # at which nobody was reached; beyond it the one that failed longest ago is forgotten
)
UNVERIFIED_PER_SOURCE_MAX: Final = 64  # never reached peers that one neighbour told us of: a liar fills 6 % of the book
BOOTSTRAPS_KEPT_MAX: Final = 8  # remembered from one life of the node to the next
ANCHORS: Final = (
    2  # the neighbours that have lasted longest, dialled first after a restart, so that nobody can replace all at once
)
DIAL_REPORTS_MAX: Final = 64
DATA_FILE_BYTES_MAX: Final = 64 << 20  # of a run's public data, which peers hold in memory while they fetch them
