"""Doors: `offer`, `renew`. A fresh basis for a run: any node may make one, its owner publishes it."""

from sfnode.cli.renewal.renewal_commands import offer, renew

__all__ = ["offer", "renew"]
