"""Doors: `strings_for`, `hand_to_node`. Make strings to join, and hand an owner's statements to a node."""

from sfnode.cli.inviting import qr_code as qr_code, statements_given as statements_given
from sfnode.cli.inviting.strings import (
    InviteOptions as InviteOptions,
    invite_options as invite_options,
    strings_for as strings_for,
)
