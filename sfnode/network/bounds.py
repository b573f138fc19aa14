"""Bounds and waiting times of the network, each with its reason. Those of the wire are in ``protocol/limits.py``."""

from protocol.framing import LENGTH_BYTES
from protocol.limits import FRAME_BYTES_MAX, PULL_BYTES_MAX

# --- frames ---------------------------------------------------------------------------------------------------
HELLO_FRAME_BYTES_MAX = 1_024  # a stranger may make us buffer this much before its hello
READ_BYTES_MAX = FRAME_BYTES_MAX + LENGTH_BYTES  # one read can take a full frame
WRITE_BYTES_MAX = FRAME_BYTES_MAX + LENGTH_BYTES  # frames joined into one write: writes cost, not bytes
SEND_QUEUE_BYTES_MAX = 262_144  # unsent, per neighbour; beyond it send() is False, and anti-entropy repairs it

# --- the cost of one neighbour ----------------------------------------------------------------------------------
RECEIVE_BYTES_PER_S = 2_000_000  # 16,000 records per second; above it we pause reading that peer
RECEIVE_BURST_BYTES = 4_000_000  # two seconds' worth; a page of 8,192 records is never delayed
FRAME_COST_BYTES = 400  # added to the size of each frame: 5,000 empty frames per second
PUSHED_RECORD_COST_BYTES = 1_000  # of an unrequested record: 2,000 per second, 4,000 at once
PUSHED_RECORD_S = 55e-6  # usual cost of such a record, a signature check: 0.11 of a core per neighbour
PUSHED_TOGETHER = 64  # records handled in one turn: 4 ms, or 20 ms if each is read from the disk
OWED_BYTES_MAX = 4 * PULL_BYTES_MAX  # answers to repeated questions may arrive late, all at once
ANSWERS_US_PER_S = 60_000  # answers to one peer: 24 pulls or 13 pages per second, more than it can verify
ANSWERS_BURST_US = 60_000  # one second's worth; a joiner's first questions are never delayed
ANSWERS_ALL_US_PER_S = 400_000  # answers to all: the rest of the core serves the flood and the node's steps
ANSWERS_IDLE_S = 10.0  # a bucket untouched for this long is full again, also when 36 peers share
ANSWER_US_MAX = 600_000  # charged for one answer: paid off in 10 s, or in 54 s among 36 peers, before DEAD_S
OBSERVER_BYTES_MAX = 4 << 20  # per observer: four copies of the largest manifest; files come on top
PEERS_ANSWER_INTERVAL_S = 0.5  # a peer list costs 300 us; more frequent questions get no answer

# --- yamux: enforced by the patches -------------------------------------------------------------------------------
STREAM_WINDOW_BYTES = 262_144  # yamux's own start value, never grown: 2.6 MB/s at a round trip of 100 ms
YAMUX_CHUNK_BYTES_MAX = 65_507  # chunk + 12 (yamux header) = 65,519, the largest plaintext of one Noise message
CONNECTION_BUFFER_BYTES_MAX = 1 << 19  # unread, per connection; a peer with four connections holds 2 MiB
FRAMES_PER_S = 10_000.0  # Noise messages and frames per connection, 5 us each: 5,000 small writes per second
FRAMES_BURST = 2_000.0
CONTROL_FRAME_COST = 100.0  # in frames: the library takes 0.2 ms for one, and 0.5 ms to start a stream
DROPPED_BYTES_PER_FRAME = 100.0  # 1 MB/s for streams that do not exist: a window in flight after a reset takes 0.1 s
SMALL_READ_COST = 10.0  # in frames: waking up takes 50 us; a peer that is slowed down sends larger writes
SMALL_READ_BYTES = 1_024
STRANGER_FRAMES_PER_S = 1_000.0  # before hello

# --- connections ------------------------------------------------------------------------------------------------
CONNECTIONS_MAX = 256  # inbound; fewer if the system allows fewer open files
INBOUND_MAX = 28  # neighbours: together they take 40 MB, and 230 us for each flooded frame
OUTBOUND_TARGET = 6  # random graphs of this degree stay connected when a third of the nodes vanish
OUTBOUND_MAX = 8  # two more than the target, for re-checking bootstraps
CONNECTIONS_PER_PEER_MAX = 4  # simultaneous dials, and a restart while the old connection hangs
OWN_HOSTS_MAX = 3  # addresses offered for "every interface": a joiner tries each, and the string to join stays short
OPEN_FILES = 4_096  # requested from the system at the start; the default of macOS is 256
FILES_BESIDE = 96  # of them not for inbound connections: libraries, store, worker, outbound connections
STRANGERS_PER_GROUP_MAX = 16  # connections of one network before their hello
STRANGERS_PER_ADDRESS_MAX = 64  # of one private address: dozens of nodes of a test network start at once
HANDSHAKES_PER_S = 5.0  # of one network, or private address; each takes 20 ms with all that may follow
HANDSHAKES_BURST = 64
HANDSHAKE_WAIT_S = 5.0  # a connection that would wait longer is closed, before its dialler gives up at DIAL_S
INBOUND_STREAMS_PER_PEER_MAX = 16  # one session, one identify, one ping, and room for observers
STREAMS_PER_S = 1.0  # per peer; each takes 2 ms, and js-libp2p opens one for each ping
STREAM_END_S = 5.0  # for the peer to end its side of a stream after us; then it is reset
STREAMS_BURST = 8  # identify, identify-push, session, ping, files, reach
PINGS_PER_S = 1.0  # answered on one stream of /ipfs/ping/1.0.0
PINGS_BURST = 8
PING_IDLE_S = 60.0  # libraries ping every 10 or 15 s and keep the stream open
FIRST_SESSION_S = 15.0  # an accepted connection without a session is closed after this
MEMORY_BYTES_MAX = 512 << 20  # of this process, less the run's coefficients; above it inbound peers go
MEMORY_AGAIN_PERCENT = 90  # of it: below this newcomers are admitted again; the gap prevents flapping
MEMORY_LOOK_S = 5.0  # one neighbour goes at each look: all 28 within two and a half minutes
OBSERVERS_MAX = 8  # strangers that fetch the manifest or files at the same time
OBSERVERS_PER_CROWD_MAX = 2  # of one network, or private address
OBSERVER_WAIT_S = 3.0  # one without a place waits for one: a manifest takes milliseconds
MANIFEST_PLACES = 1  # reserved for the manifest: it takes milliseconds, a basis minutes
OBSERVER_IDLE_S = 8.0  # without a request; a part takes 1.6 s at 20 kB/s, the doctor's dial back 5 s
SHORT_ANSWERS_PER_S = 20.0  # to one observer, shorter than a part: full parts are bounded by their bytes
SHORT_ANSWERS_BURST = 64
NEIGHBOURS_SERVED_MAX = 16  # streams on which neighbours fetch files at the same time
NEIGHBOURS_GIVEN_MAX = 8  # of them for pieces of the model: four neighbours, which soon serve others
FILES_PER_NEIGHBOUR_MAX = 4  # a basis, a snapshot, and two streams for the pieces of the model
PIECE_STREAMS_PER_NEIGHBOUR_MAX = 2  # one piece flows while the other ends
TURN_S = 10.0  # after this a neighbour that has a whole piece may lose its place to others
UNFINISHED_TURN_S = 60.0  # without a whole piece: one takes this long at 17 kB/s
OBSERVER_S = 60.0  # enough for the largest manifest at 20 kB/s
OBSERVER_BYTES_PER_S_MIN = 50_000  # of a basis, after that minute: a slower observer dials again and continues
LEAST_PACE_S = 10.0  # after this a joiner leaves a slow node if it knows another
PART_SENT_S = 5.0  # at most between two parts of a stream, with --max-upload: who asks waits HELLO_S for each
PARTS_AHEAD_MAX = 8  # requests in flight for a basis: they fill a stream's window
PIECE_PARTS_AHEAD = 4  # requests in flight for a model's piece: half a window for each of two streams

# --- waiting times ----------------------------------------------------------------------------------------------
CONNECT_S = 3.0  # TCP alone, where the peer has another address to try: a lost packet costs 1 s
DIAL_S = 15.0  # name lookup, TCP, Noise, Yamux and protocol negotiation of one address
HELLO_S = 10.0  # wait for the first frame of the other side
PING_INTERVAL_S = 30.0  # below the idle time-outs of common NAT boxes
DEAD_S = 120.0  # four pings unanswered
NEGOTIATION_LINE_BYTES_MAX = 1_024  # holds a protocol name; ours have 20 bytes
WRITE_S = 20.0  # one stream write; a slow link (25 kbit/s) still manages 64 KiB
BYE_S = 0.7  # a polite end waits this long for the peer's end of stream
CLOSE_S = 0.5  # closing one connection; takes milliseconds
START_S = 30.0  # the library begins to listen; takes milliseconds
STOP_S = 1.8  # stopping the whole network, so that the daemon ends within 5 s
SIMULTANEOUS_S = 25.0  # sessions this close, one dial and one hello, count as dialled from both ends

# --- overlay ----------------------------------------------------------------------------------------------------
DIALS_AT_ONCE_MAX = 4
UPKEEP_INTERVAL_S = 1.0  # between searches for missing neighbours; events wake it earlier
EXCHANGE_INTERVAL_S = 300.0  # between requests for a peer list in a steady state
EXCHANGE_START_S = 1.0  # first pause for a new neighbour, perhaps new itself; each next is twice as long
PEERS_PER_ANSWER_MAX = 32
BACKOFF_START_S = 1.0
BACKOFF_MAX_S = 600.0  # a peer that is down is tried about every five minutes
BACKOFF_BOOTSTRAP_MAX_S = 60.0  # a bootstrap that is down is tried about every half minute: joiners wait for it
BOOTSTRAP_CHECK_S = 600.0  # between extra dials to a bootstrap: they merge the halves of a split network
SHORT_SESSION_S = 5.0  # a shorter session lets the peer rest longer, as a failed dial does, up to the minute above
REFUSED_S = 60.0  # not redialled sooner after a polite refusal ("full")
WRONG_RUN_S = 3_600.0  # the same after "other run" or "other version", which do not change by themselves

# --- reputation: penalties for misbehaving peers ---------------------------------------------------------------------
SCORE_HALF_LIFE_S = 600.0  # a laptop that slept through a write is forgiven before it sleeps again
SCORE_NOT_PUSHED = -20.0  # from here down nothing is pushed to the peer; it can still ask
SCORE_DISCOURAGED = -50.0  # its session ends, and it is neither dialled nor accepted
DISCOURAGED_S = 24 * 3_600.0  # for so long a discouraged peer is neither dialled nor accepted
DISCOURAGED_MAX = 1_024  # remembered misbehaving peers; beyond it the one that ends first is forgotten
SCORES_MAX = 1_024  # peers with a score; beyond it the one closest to zero is forgotten
BREAKER_S = 600.0  # discouraged peers and peers with sessions are counted for this long
SPARED_S = 60.0  # a peer that the breaker spared rests as long as after a polite refusal
BREAKER_FREE = 2  # this many may always be discouraged: a quarter of three is less than one
BREAKER_PART = 4  # if more than a quarter of the peers seem bad, the fault is probably ours

# --- dial back, on request of `sfnode doctor` ------------------------------------------------------------------------
REACH_ANSWER_S = 10.0  # the question, one dial, the answer
REACH_DIAL_S = 5.0  # a TCP connection that takes longer is useless
REACH_INTERVAL_S = 10.0  # between dials to one address: nobody may scan a network through this node
REACH_AT_ONCE_MAX = 4
REACH_ADDRESSES_MAX = 256  # dialled within the interval; beyond it nobody is dialled

# --- a port of the router ------------------------------------------------------------------------------------------
MAPPING_LEASE_S = 3_600  # the mapping of a killed node ends after this
MAPPING_RENEW_S = 1_200.0  # two renewals may fail
MAPPING_DISCOVER_MS = 1_000  # routers answer within milliseconds
MAPPING_CLOSE_S = 1.0  # one question to the router, at the end of the node
MAPPING_TRIES = 4  # external ports, the node's own first

# --- finding peers on the local network -----------------------------------------------------------------------------
MDNS_PACKET_BYTES_MAX = 1_500  # one Ethernet frame; our packets have 300 bytes
MDNS_RECORDS_MAX = 32  # in one packet; printers announce a dozen
MDNS_LABELS_MAX = 16  # of one name; our names have four
MDNS_POINTERS_MAX = 64  # followed in one packet: two for each record; ours have none, printers' one each
MDNS_ADDRESSES_MAX = 4  # in one packet
MDNS_PACKET_S = 0.01  # pause after each packet: at most 100 per second, 0.5 % of a core
MDNS_ANSWER_INTERVAL_S = 1.0  # RFC 6762, 6: one answer a second
MDNS_QUERY_START_S = 2.0  # after the first question; each next pause is twice as long
MDNS_QUERY_MAX_S = 120.0

# --- address book -----------------------------------------------------------------------------------------------
KNOWN_PEERS_MAX = 1_000
ADDRESSES_PER_PEER_MAX = 8
ADDRESSES_RESTING_MAX = 1_024  # after a failed dial; beyond it the one that failed longest ago is forgotten
HOST_DIAL_S = 5.0  # between dials to one public host that nobody answers, after a burst: it may have several nodes
HOST_DIALS_BURST = 8
UNVERIFIED_AT_ONCE_MAX = 2  # addresses of one peer that others have named, tried one after the other
UNVERIFIED_DIALS_PER_S = 2.0  # of such addresses, by all peers together
UNVERIFIED_DIALS_BURST = 32.0
UNVERIFIED_PER_SOURCE_MAX = 64  # never reached peers from one neighbour: a liar fills 6 % of the book
FAILURES_TO_GIVE_WAY = 3  # of such a peer, whose place another one that the neighbour names may have then
BOOTSTRAPS_KEPT_MAX = 8  # saved for the node's next start
ANCHORS = 2  # longest-lasting neighbours, dialled first after a restart, so that nobody can replace all at once
DIAL_REPORTS_MAX = 64
DATA_FILE_BYTES_MAX = 64 << 20  # a run's public data; peers hold them in memory while they fetch them
