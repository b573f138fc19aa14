"""Doors: `strings_for`, `qr_lines`. One string with all that a joiner needs, and its QR code."""

from sfnode.cli.inviting.qr_code import is_qr_shown, qr_lines, write_svg
from sfnode.cli.inviting.strings import InviteOptions, invite_options, strings_for

__all__ = ["InviteOptions", "invite_options", "is_qr_shown", "qr_lines", "strings_for", "write_svg"]
