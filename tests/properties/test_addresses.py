"""What a peer says of addresses costs little, can be shown, and never leads to this machine."""

from __future__ import annotations

import time

import pytest

from sfnode.network.policy.addresses import parse_untrusted, reachable_addresses

# In the order of their lengths: while the pattern is wrong, the next one takes twice as long for each letter.
LABELS = {"letters": "a" * 24, "hyphens": "a-" * 12, "labels": "a." * 12, "mixed": "a-b." * 6}


@pytest.mark.parametrize("label", LABELS.values(), ids=LABELS.keys())
def test_address__long_host_name_with_one_bad_character__is_refused_at_once(label: str) -> None:
    """Found by fuzzing: the pattern of host names tried every way to cut the letters: minutes for 30, ages for 40."""
    start_s = time.process_time()
    assert parse_untrusted((f"/dns/{label}!/tcp/1",)) == ()
    assert time.process_time() - start_s < 0.05


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "::ffff:127.1.2.3", "::ffff:7f00:1", "::1", "::1%eth0"])
def test_address__loopback_in_any_spelling__is_not_believed_from_outside(host: str) -> None:
    told = parse_untrusted((f"/ip6/{host}/tcp/4001",))
    assert reachable_addresses(told, observed_host="192.0.2.1") == ()


@pytest.mark.parametrize("host", ["::ffff:0.0.0.0", "::ffff:0:0"])
def test_address__every_interface_as_a_mapped_address__never_leads_to_this_machine(host: str) -> None:
    """A dial to it is a dial to loopback. "Every interface" becomes the address we see, or nothing."""
    told = parse_untrusted((f"/ip6/{host}/tcp/4001",))
    assert set(map(str, reachable_addresses(told, observed_host="192.0.2.1"))) <= {"/ip4/192.0.2.1/tcp/4001"}


@pytest.mark.parametrize("zone", ["a\x1b[31m", "a\nINFO all is well", "\u202e", "a b\t"])
def test_address__zone_with_control_characters__is_refused(zone: str) -> None:
    """It would reach logs and terminals with the address."""
    assert all(str(address).isprintable() for address in parse_untrusted((f"/ip6/fe80::1%{zone}/tcp/1",)))
