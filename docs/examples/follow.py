"""Join a run as a node that stores and passes on, and follow its events until it holds as much as its neighbours.

python docs/examples/follow.py STRING FOLDER
"""

import sys
from pathlib import Path

import trio

import sfnode


async def follow(string: str, folder: Path) -> bytes:
    """Return the digest of the model's state, which all nodes with these updates have."""
    async with sfnode.join(string, folder=folder, is_relay=True) as node:
        async for event in node.events():
            print(event.name, event.text)
            found, replica = node.statistics(), node.replica
            if found is not None and replica is not None and replica.ledger.updates and not found.catching_up:
                return replica.state_digest()
    raise SystemExit("the node ended before it had caught up")


if __name__ == "__main__":
    print(trio.run(follow, sys.argv[1], Path(sys.argv[2])).hex())
