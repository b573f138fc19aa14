"""Door: `Synchroniser` and `Flood`. How the sets travel: new records are pushed, missing ones are found and pulled."""

from protocol.sync.anti_entropy import Claims, SyncSession, answer
from protocol.sync.comparison_schedule import Synchroniser
from protocol.sync.flood_queues import Flood
