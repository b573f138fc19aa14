"""Door: `AddressBook`. Pure decisions about peers: addresses, places, rates, reputation. No clock, no socket."""

from sfnode.network.policy import (
    inbound_eviction as inbound_eviction,
    ip_groups as ip_groups,
    node_names as node_names,
    outbound_choice as outbound_choice,
    rate_limits as rate_limits,
    reputation as reputation,
)
from sfnode.network.policy.address_book import AddressBook as AddressBook, PeerRow as PeerRow
from sfnode.network.policy.addresses import (
    Address as Address,
    author_of_peer as author_of_peer,
    believable_addresses as believable_addresses,
    parse_address as parse_address,
    parse_announce as parse_announce,
    parse_bootstrap as parse_bootstrap,
    parse_listen as parse_listen,
    parse_untrusted as parse_untrusted,
    peer_of_author as peer_of_author,
    reachable_addresses as reachable_addresses,
)
from sfnode.network.policy.ip_groups import Group as Group, Origins as Origins
from sfnode.network.policy.limited_places import FairPlace as FairPlace, FairPlaces as FairPlaces, Places as Places
from sfnode.network.policy.node_names import NameBook as NameBook, NodeName as NodeName
from sfnode.network.policy.reputation import DiscouragedRow as DiscouragedRow, Fault as Fault
from sfnode.network.policy.token_bucket import TokenBucket as TokenBucket, TokenBuckets as TokenBuckets
