"""Judge by the bootstraps' answers whether others can dial this machine, and what kind of NAT is in between."""

import ipaddress

from sfnode.doctor.bootstraps import Seen, Surroundings
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


def judge_nat(seen: list[Seen]) -> Finding:
    """Judge the kind of address translation by the addresses and ports that peers see."""
    name = "NAT"
    if not seen:
        return unknown(name, "no peer said how it sees this machine")
    if all(each.answer.host == each.local[0] for each in seen):
        return ok(name, f"none: peers see this machine at its own address, {seen[0].local[0]}")
    hosts = sorted({each.answer.host for each in seen})
    shared = [each for each in seen if each.local[1] == seen[0].local[1] and each.answer.host != each.local[0]]
    ports = sorted({each.answer.port for each in shared})
    if len(hosts) > 1 and len(ports) > 1:
        return warning(name, f"several public addresses: {', '.join(hosts)}", "this node can only dial out")
    if len(shared) < 2:
        return unknown(name, f"there is one: peers see {hosts[0]}. It takes two bootstraps outside to tell its kind")
    if len(ports) == 1:
        return ok(name, f"there is one that keeps one port for all peers ({hosts[0]}, port {ports[0]})")
    text = f"there is one that gives each peer another port ({hosts[0]}, ports {', '.join(map(str, ports))})"
    return warning(name, text, "others cannot dial in without a forwarded port; dialling out works")
