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
from sfnode.network.policy.fair_places import FairPlace, FairPlaces
from sfnode.network.policy.inbound import INBOUND_MAX, InboundPlace, choose_to_evict, choose_to_shed
from sfnode.network.policy.ip_groups import DEFAULT_ORIGINS, Group, Origins, ip_group_of, parse_origins, public_group_of
from sfnode.network.policy.outbound import (
    OUTBOUND_MAX,
    OUTBOUND_TARGET,
    Candidate,
    Dialled,
    choose_to_leave,
    elsewhere,
    is_crowded,
    spread,
)
from sfnode.network.policy.places import Places
from sfnode.network.policy.rate_limits import (
    Asked,
    RateLimits,
    copies_cost_bytes,
    cost_us,
    in_turns,
    is_pushed,
    pushed_cost_bytes,
)
from sfnode.network.policy.reputation import DiscouragedRow, Fault, PeerVerdict, Reputation
from sfnode.network.policy.token_bucket import TokenBucket, TokenBuckets

__all__ = [
    "is_pushed",
    "peer_of_author",
    "Address",
    "AddressBook",
    "Asked",
    "Candidate",
    "DEFAULT_ORIGINS",
    "Dialled",
    "DiscouragedRow",
    "FairPlace",
    "FairPlaces",
    "Fault",
    "Group",
    "INBOUND_MAX",
    "InboundPlace",
    "OUTBOUND_MAX",
    "OUTBOUND_TARGET",
    "Origins",
    "PeerRow",
    "PeerVerdict",
    "Places",
    "RateLimits",
    "Reputation",
    "TokenBucket",
    "TokenBuckets",
    "author_of_peer",
    "believable_addresses",
    "choose_to_evict",
    "choose_to_leave",
    "choose_to_shed",
    "copies_cost_bytes",
    "cost_us",
    "in_turns",
    "elsewhere",
    "ip_group_of",
    "is_crowded",
    "parse_address",
    "parse_announce",
    "parse_bootstrap",
    "parse_listen",
    "parse_origins",
    "parse_untrusted",
    "public_group_of",
    "pushed_cost_bytes",
    "reachable_addresses",
    "spread",
]
