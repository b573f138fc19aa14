"""Whether the node of this container is alive: exit code 0 while it runs and has just reported. Prints its status.

    python deploy/healthcheck.py /data/status.json

Standard library only: it runs every ten seconds beside every node, and `sfnode status` takes two seconds of processor
time to import what a node is made of.
"""

import json
import os
import sys
import time

FRESH_S = 15.0  # as `sfnode status` has it


def main(path: str) -> None:
    """Print the status, or leave with what is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            status = json.load(file)
        os.kill(status["pid"], 0)
    except (OSError, ValueError) as error:
        sys.exit(f"no node runs here: {error}")
    if not holds(status["pid"], os.path.join(os.path.dirname(path), "lock")):
        sys.exit("no node of this container runs here: the status is of an earlier one, or of another on the volume")
    if (age_s := time.time() - status["time"]) > FRESH_S:
        sys.exit(f"the node has not reported for {age_s:.0f} s")
    sys.stdout.write(json.dumps(status) + "\n")


def holds(pid: int, lock: str) -> bool:
    """Return whether the process has the node's lock open; True where the system does not say.

    Of two containers with one volume the second cannot start, and the first one's status lies there, with the id of a
    process that both may have.
    """
    folder = f"/proc/{pid}/fd"
    try:
        names, lock = os.listdir(folder), os.path.realpath(lock)
    except OSError:
        return True
    return any(os.path.realpath(f"{folder}/{name}") == lock for name in names)


if __name__ == "__main__":
    main(sys.argv[1])
