"""Door: `Synchroniser` and `Flood`. How the sets travel: new records are pushed, missing ones are found and pulled."""

from protocol.sync.anti_entropy import Claims as Claims, SyncSession as SyncSession, answer as answer
from protocol.sync.flood import Flood as Flood
from protocol.sync.request_schedule import Synchroniser as Synchroniser
