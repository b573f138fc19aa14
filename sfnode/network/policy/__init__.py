"""Door: `AddressBook`. Pure decisions about peers: addresses, places, rates, reputation. No clock, no socket."""

from sfnode.network.policy import ip_groups as ip_groups, rate_limits as rate_limits
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
from sfnode.network.policy.inbound import (
    InboundPlace as InboundPlace,
    choose_to_evict as choose_to_evict,
    choose_to_shed as choose_to_shed,
)
from sfnode.network.policy.ip_groups import Group as Group, Origins as Origins
from sfnode.network.policy.outbound import (
    Candidate as Candidate,
    Dialled as Dialled,
    choose_to_leave as choose_to_leave,
    elsewhere as elsewhere,
    is_crowded as is_crowded,
    spread as spread,
)
from sfnode.network.policy.places import FairPlace as FairPlace, FairPlaces as FairPlaces, Places as Places
from sfnode.network.policy.rate_limits import Asked as Asked, RateLimits as RateLimits
from sfnode.network.policy.reputation import (
    DiscouragedRow as DiscouragedRow,
    Fault as Fault,
    PeerVerdict as PeerVerdict,
    Reputation as Reputation,
)
from sfnode.network.policy.token_bucket import TokenBucket as TokenBucket, TokenBuckets as TokenBuckets
