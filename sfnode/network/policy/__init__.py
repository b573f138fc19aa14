"""Door: `AddressBook`. Pure decisions about peers: addresses, places, rates, reputation. No clock, no socket."""

from sfnode.network.policy import inbound_eviction, ip_groups, node_names, outbound_choice, rate_limits, reputation
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
from sfnode.network.policy.ip_groups import Group, Origins
from sfnode.network.policy.limited_places import FairPlace, FairPlaces, Places
from sfnode.network.policy.node_names import NameBook, NodeName
from sfnode.network.policy.reputation import DiscouragedRow, Fault
from sfnode.network.policy.token_bucket import TokenBucket, TokenBuckets
