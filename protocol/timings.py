"""Every interval and timeout of a node, each with its reason (SPEC 10).

Bounds are in ``protocol/limits.py``, the timeouts of sockets in ``sfnode/network/bounds.py``.
"""

# --- flood and ticks ------------------------------------------------------------------------------------------
FLUSH_INTERVAL_MS = 50  # one frame costs about 230 us: at most 20 flood frames per second and neighbour
FLUSH_INTERVAL_MS_MAX = 400  # while the machine is busy: fuller frames, and fewer copies of each update
LATE_MS_MAX = 25  # a tick that comes later than this finds a busy machine
REST_MS_MAX = 250  # between two ticks when nothing waits: precise enough for heads and time limits

# --- anti-entropy ---------------------------------------------------------------------------------------------
HEAD_INTERVAL_MS = 2_000  # how often neighbours compare digests
REQUEST_TIMEOUT_MS = 10_000  # of a sync request without answer: then that peer rests and another is asked
ANSWER_MS_MAX = 60_000  # for all parts of an answer: 128 KiB at 2 kB/s; a slower peer holds up others
SYNC_REST_MS = 1_000  # between two sync sessions with the same peer; doubled by each failure in a row
SYNC_REST_MS_MAX = 60_000  # for a peer that stalls for ever, or promises what it never sends
FIRST_SYNC_TIMEOUT_MS = 30_000  # no peer answered for this long: go on with what the disk holds
RECOUNT_REST_MS = 60_000  # between two recounts of the state that a neighbour's digest made necessary
SNAPSHOT_MISSING_MS = 60_000  # how long nothing of what a snapshot counts may come; then its use ends

# --- the pace of steps ----------------------------------------------------------------------------------------
STEP_WAIT_MS_MIN = 200
STEP_WAIT_MS_MAX = 30_000
STEP_WAIT_MS_START = 5_000  # before any pace was observed
STEP_WAIT_FACTOR = 2  # times the observed median pace, while fewer than half of the authors are there
STEP_GRACE_PART = 20  # of that pace, for the others: so that authors who are always late cost little
ROUNDS_AHEAD_MAX = 8  # ahead of the median of the authors at work; a fast node must not spend its steps alone
AT_WORK_INTERVALS = 8  # an author silent for longer than this many of its usual intervals has left
MET_MS_MIN = 600_000  # an author silent for less still counts for the frontier, while most others are silent, too
MET_MS_MAX = 3_600_000  # and one silent for longer than AT_WORK_INTERVALS of its intervals, up to this, does not
ACTIVE_WINDOW_STEPS = 2  # no node waits for an author that is behind by more rounds than this

# --- the end of a run -----------------------------------------------------------------------------------------
WORK_TOLD_MS = 100  # between two heads that report a new distance to work: the whole climb takes 1.6 s
END_INTERVALS = 4  # an author silent for longer than this many of its usual intervals signs no last round
END_PATIENCE_MS_MAX = 900_000  # and however slow it was: a step of a large model takes minutes
END_WAIT_MS_MAX = 1_800_000  # then a node that has done its part leaves and reports what is missing
