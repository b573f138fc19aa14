"""Door: `node_seed`. Makes, checks and backs up the keys of nodes and owners; invitations, and proofs of work."""

from sfnode.keys.key_backup import read_backup, write_backup
from sfnode.keys.node_key import claim_invitation, node_seed
from sfnode.keys.owner_key import INVITATION_ENDING, KEY_ENDING, check_owner, new_invitation
