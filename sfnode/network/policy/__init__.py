"""Door: `AddressBook`. Pure decisions about peers: addresses, places, rates, reputation. No clock, no socket."""

from sfnode.network.policy.address_book import AddressBook, PeerRow
from sfnode.network.policy.addresses import (
    Address,
    author_of_peer,
    believable_addresses,
    parse_address,
    parse_announce,
    parse_bootstrap,
    parse_listen,
    parse_untrusted,
    peer_of_author,
    reachable_addresses,
)
from sfnode.network.policy.inbound import InboundPlace, choose_to_evict, choose_to_shed
from sfnode.network.policy.ip_groups import Group, group_of, has_group_room, has_stranger_room, limited_group_of
from sfnode.network.policy.outbound import Candidate, Dialled, choose_to_leave, elsewhere, is_crowded, spread
from sfnode.network.policy.rate_limits import PUSHED, Asked, RateLimits, cost_us, is_pushed, pushed_cost_bytes
from sfnode.network.policy.reputation import DiscouragedRow, Fault, PeerVerdict, Reputation
from sfnode.network.policy.token_bucket import TokenBucket

__all__ = [
    "is_pushed",
    "peer_of_author",
    "Address",
    "AddressBook",
    "Asked",
    "Candidate",
    "Dialled",
    "DiscouragedRow",
    "Fault",
    "Group",
    "InboundPlace",
    "PUSHED",
    "PeerRow",
    "PeerVerdict",
    "RateLimits",
    "Reputation",
    "TokenBucket",
    "author_of_peer",
    "believable_addresses",
    "choose_to_evict",
    "choose_to_leave",
    "choose_to_shed",
    "cost_us",
    "elsewhere",
    "group_of",
    "has_group_room",
    "has_stranger_room",
    "is_crowded",
    "limited_group_of",
    "parse_address",
    "parse_announce",
    "parse_bootstrap",
    "parse_listen",
    "parse_untrusted",
    "pushed_cost_bytes",
    "reachable_addresses",
    "spread",
]
