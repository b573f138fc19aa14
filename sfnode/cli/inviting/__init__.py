"""Doors: `strings_for`, `hand_to_node`. Make strings to join, and hand an owner's statements to a node."""

from sfnode.cli.inviting.qr_code import is_qr_shown, qr_lines, write_svg
from sfnode.cli.inviting.statements_given import check_epoch_is_free, hand_to_node, held_roster
from sfnode.cli.inviting.strings import InviteOptions, invite_options, strings_for

__all__ = [
    "InviteOptions",
    "check_epoch_is_free",
    "hand_to_node",
    "held_roster",
    "invite_options",
    "is_qr_shown",
    "qr_lines",
    "strings_for",
    "write_svg",
]
