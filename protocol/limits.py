"""Every bound of the protocol, each with its reason.

Intervals and timeouts are in ``protocol/timings.py``, bounds of sockets in ``sfnode/network/bounds.py``.
"""

# --- manifest -------------------------------------------------------------------------------------------------
MANIFEST_BYTES_MAX = 1 << 20  # 5,000 tensors with long names fit; a joiner buffers one before it can check it
NAME_LENGTH_MAX = 256  # of a run, tensor, file or label word
TENSORS_MAX = 8_192  # a 400-layer model with every tensor listed
RANK_MAX = 128  # a canonical core takes 2 log2(r) + 1 <= 15 of 16 bits (SPEC 4.3)
DIRECTIONS_MAX = 256
LOCAL_STEPS_MAX = 64
SCALARS_MAX = 1_024  # directions x local steps in one envelope: 2 KiB
STEPS_MAX = 1 << 20  # spans of a run fit in one 64 KiB frame (1,024 x 20 bytes)
WEIGHT_MAX = 1 << 16  # integer learning-rate weight
CLIP_MAX = (1 << 15) - 1  # scalars travel as int16
NORMALISED_CLIP = 127  # SPEC 5.2: round(32 g / rms) fits int8
DENSE_CLIP_MAX = 127  # numbers of a dense message travel in 8 bits or fewer
DENSE_NUMBERS_MAX = 1 << 14  # of a dense message: three records fit into one frame, whatever the bits
NOISE_ROWS_MAX = 1 << 16
ENERGY_MAX = DENSE_NUMBERS_MAX * DENSE_CLIP_MAX**2
CORES_MAX = 1 << 20  # tensors x scalars of one update, summed in 35 ms: of 70 B D = 64, K = 16 fit
CORE_PRODUCTS_MAX = 1 << 30  # Rademacher cores x rank^2: 0.6 s; the same fits at rank 32
AUTHORS_MAX = 1 << 16
LOG_BLOCK_BYTES_MAX = 1 << 20  # of a log file, read and checked at once: 8,000 records
POW_BITS_MAX = 32  # 2^32 keys: days on one core
BASIS_ENTRY_MAX = 127  # int8
BASIS_BYTES_MAX = 1 << 28  # OPT-6.7b at rank 32 takes 80 MB
NORMALISED_MASS = 33  # largest sum of |q| over D normalised scalars, divided by D (SPEC 4.5)
MODEL_FILE_BYTES_MAX = 1 << 40
MODEL_PIECE_BYTES = 1 << 20  # a list of 32 bytes a piece: 32 KB for each GB; a liar costs one of them
COEFFICIENTS_MAX = 1 << 26  # int64 of all epochs: 512 MiB, the memory that a node without the model may take
COEFFICIENT_BITS_MAX = 53  # every |entry of U C V^T| < 2^53: it is exact in fp64 in any order of summation

# --- ledger ---------------------------------------------------------------------------------------------------
SPAN_STEPS = 1_024  # steps per digest bucket: one author's bitmap is 128 bytes
GROUP_STEPS = 16  # hashed together: one byte for each slot held, and a change reads at most 15 other slots
STEPS_AHEAD_MAX = 64  # beyond the frontier a pushed record waits for anti-entropy
RECORDS_IN_MEMORY_MAX = 8_192  # of a ledger with an archive: 2 MB; all that is flooded now is among them
RECORD_BYTES_IN_MEMORY_MAX = 16 << 20  # of them: 8,192 of 2 kB, 1,024 of the largest dense ones
WAITING_BYTES_MAX = 8 << 20  # of records not yet summed into the coefficients; beyond it each new one waits
STATEMENTS_MAX = 2 * AUTHORS_MAX  # an admission and an exclusion of each author; only the owner can fill it
TOKEN_USES_MAX = 100  # authors that one invitation admits, a large class: their claims fit in one message
SNAPSHOT_BYTES_MAX = 64 << 20  # hashed, and decoded, in 0.2 s; a larger run has no snapshots
SNAPSHOT_BEHIND_MIN = 60_000  # updates that a core replays in about 5 s: a joiner waits for fewer
ATTESTATIONS_MAX = 1_024  # authors whose newest attestation is kept: 140 kB
ATTESTATIONS_PER_TELLER_MAX = 256  # of authors not known yet, from one neighbour: as many as one message holds

# --- wire -----------------------------------------------------------------------------------------------------
FRAME_BYTES_MAX = 65_536
RECORDS_PER_FRAME_MAX = 512
AUTHORS_PER_PAGE_MAX = 128  # 128 x ~310 bytes stay below a frame
STATEMENT_BYTES_MAX = 193  # a claim: kind, two keys, two signatures
STATEMENTS_PER_MESSAGE_MAX = 256  # of at most 193 bytes each: 50 kB
ATTESTATION_BYTES = 136  # author, step, length, hash, signature
ATTESTATIONS_PER_MESSAGE_MAX = 256  # of 136 bytes each: 35 kB
PULL_AUTHORS_MAX = 256  # author bitmaps in one pull request
PART_BYTES_MAX = 32_768  # of the manifest or a file, in one message
PEERS_PER_MESSAGE_MAX = 64
ADDRESSES_PER_PEER_MAX = 8
ADDRESS_LENGTH_MAX = 256
TEXT_LENGTH_MAX = 256  # agent, reason
WORK_DISTANCE_MAX = 16  # sessions; random graphs of degree 4 have this diameter at a million nodes

# --- node core ------------------------------------------------------------------------------------------------
PULL_BYTES_MAX = 128 * 1024  # asked for at once; half of a neighbour's queue, verified in about 50 ms
PUSH_QUEUE_RECORDS_MAX = 8_192  # per neighbour; beyond it the neighbour catches up by anti-entropy
