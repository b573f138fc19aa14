"""Doors: `strings_for`, `hand_to_node`. Make strings to join, and hand an owner's statements to a node."""

from sfnode.cli.inviting import qr_code, statement_delivery
from sfnode.cli.inviting.invitation_strings import InviteOptions, invite_options, strings_for
