"""Door: `node_seed`. Makes, checks and backs up the keys of nodes and owners; invitations, and proofs of work."""

from sfnode.keys.key_backup import read_backup, write_backup
from sfnode.keys.run_keys import INVITATION_ENDING, KEY_ENDING, check_owner, claim_invitation, new_invitation, node_seed
