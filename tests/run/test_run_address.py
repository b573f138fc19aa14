"""The string to paste that says where a run is and which run it is."""

from __future__ import annotations

import pytest

from protocol.errors import OperatorError
from sfnode.network.policy.addresses import Address, parse_bootstrap
from sfnode.run.run_address import RunAddress, address_for_others, parse_run_addresses
from tests.support.manifests import small_manifest

RUN, OTHER_RUN = b"\1" * 32, b"\2" * 32
PEER = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
PUBLIC, NEARBY, HERE, NAMED = (
    parse_bootstrap(f"/{host}/tcp/4001/p2p/{PEER}")
    for host in ("ip4/203.0.113.7", "ip4/192.168.1.7", "ip4/127.0.0.1", "dns4/node.example.org")
)


@pytest.mark.parametrize(
    "address",
    [RunAddress(run_id=RUN, nodes=(PUBLIC,)), RunAddress(run_id=RUN, nodes=(PUBLIC, NAMED)), RunAddress(nodes=(HERE,))],
)
def test_run_address__printed_and_parsed__is_the_same(address: RunAddress) -> None:
    assert parse_run_addresses([str(address)]) == address


def test_parse__several__are_one_run_with_all_nodes() -> None:
    texts = [f"sfnode:{RUN.hex()}@{PUBLIC}", str(NEARBY), f"sfnode:{RUN.hex()}@{NAMED},{HERE}"]
    assert parse_run_addresses(texts) == RunAddress(run_id=RUN, nodes=(PUBLIC, NEARBY, NAMED, HERE))
    assert parse_run_addresses([]) == RunAddress()


@pytest.mark.parametrize(
    "text",
    [
        "sfnode:",
        f"sfnode:{RUN.hex()}",
        f"sfnode:{RUN.hex()}@",
        f"sfnode:{RUN.hex()[:16]}@{PUBLIC}",
        f"sfnode:{RUN.hex().replace('0', 'g')}@{PUBLIC}",
        f"sfnode:@{PUBLIC}",
        f"sfnode:{PUBLIC}",
    ],
)
def test_parse__cut_off_or_mistyped__says_what_it_should_be(text: str) -> None:
    with pytest.raises(OperatorError, match=r"sfnode:RUN_ID@.*64 hexadecimal digits.*Copy it whole"):
        parse_run_addresses([text])


def test_parse__two_runs__are_both_named() -> None:
    with pytest.raises(OperatorError, match="two runs, 0101010101010101 and 0202020202020202"):
        parse_run_addresses([f"sfnode:{run_id.hex()}@{PUBLIC}" for run_id in (OTHER_RUN, RUN)])


@pytest.mark.parametrize(
    ("addresses", "given", "is_public"),
    [
        ((NAMED, NEARBY, HERE), (NAMED,), True),
        ((PUBLIC, HERE), (PUBLIC,), True),
        ((NEARBY, HERE), (NEARBY,), False),
        ((HERE,), (HERE,), False),
        ((), (), False),
    ],
)
def test_address_for_others__several_addresses__are_those_that_reach_farthest(
    addresses: tuple[Address, ...], given: tuple[Address, ...], is_public: bool
) -> None:
    manifest = small_manifest()
    address = address_for_others(manifest, addresses, 7)
    assert (address.nodes, address.bounds == "") == (given, is_public)
    assert str(address) == (f"sfnode:{manifest.run_id.hex()}@{given[0]}" if given else "")
