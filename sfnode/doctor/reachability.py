"""Judge by the bootstraps' answers whether others can dial this machine."""

import ipaddress

from sfnode.doctor.bootstraps import Surroundings
from sfnode.doctor.findings import Finding, ok, unknown, warning
from sfnode.network import DialBack
from sfnode.reporter import counted


def judge_reachability(known: Surroundings, is_listening: bool) -> Finding:
    """Judge by the peers' answers whether others can dial this machine."""
    name = "reachable from outside"
    if not is_listening:
        return unknown(name, "not asked: without --listen a node dials out only, and is a full member all the same")
    if not known.seen:
        return unknown(name, "nobody to ask: no bootstrap answered this question", "give a --bootstrap that works")
    outcomes = [seen.answer.outcome for seen in known.seen]
    port = known.listen_port
    if DialBack.REACHED in outcomes:
        hosts = sorted({seen.answer.host for seen in known.seen if seen.answer.outcome is DialBack.REACHED})
        if all(ipaddress.ip_address(host).is_private for host in hosts):
            text = f"peers in your own network reached port {port} at {', '.join(hosts)}; nobody outside was asked"
            return ok(name, text)
        return ok(name, f"peers reached port {port} at {', '.join(hosts)}")
    if DialBack.NOT_REACHED in outcomes:
        host = known.seen[0].answer.host
        text = f"{counted(outcomes.count(DialBack.NOT_REACHED), 'peer')} could not connect to port {port} at {host}"
        advice = f"forward TCP port {port} in your router and open it in the firewall, or leave --listen out"
        return warning(name, text, advice)
    return unknown(name, "the peers had dialled for others just now", "try again in a minute")
