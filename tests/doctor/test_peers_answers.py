"""What `sfnode doctor` makes of its peers' answers: network address translation, and whether others can dial."""

from __future__ import annotations

import pytest

from sfnode.doctor import bootstraps, reachability
from sfnode.doctor.findings import Verdict
from sfnode.network.policy.addresses import peer_of_author
from sfnode.network.transport.reachability import DialBack, ReachAnswer

PEER = peer_of_author(bytes(31) + b"\1")


def seen(host: str, port: int, local: tuple[str, int] = ("192.168.1.5", 700), outcome: int = 0) -> bootstraps.Seen:
    answer = ReachAnswer(outcome=DialBack(outcome), unix_ms=0, host=host, port=port)
    return bootstraps.Seen(peer=PEER, answer=answer, local=local, clock_ahead_s=0.0)


@pytest.mark.parametrize(
    ("answers", "verdict", "part"),
    [
        ([], Verdict.UNKNOWN, "no peer said"),
        ([seen("192.168.1.5", 700)], Verdict.OK, "none"),
        ([seen("203.0.113.9", 700)], Verdict.UNKNOWN, "two bootstraps"),
        ([seen("203.0.113.9", 700), seen("203.0.113.9", 700)], Verdict.OK, "keeps one port"),
        ([seen("203.0.113.9", 700), seen("203.0.113.9", 701)], Verdict.WARNING, "another port"),
        ([seen("203.0.113.9", 700), seen("203.0.113.8", 701)], Verdict.WARNING, "several public addresses"),
        ([seen("203.0.113.9", 7), seen("203.0.113.9", 8, ("192.168.1.5", 9))], Verdict.UNKNOWN, "two bootstraps"),
    ],
)
def test_doctor__nat__is_told_from_what_peers_see(answers: list[bootstraps.Seen], verdict: Verdict, part: str) -> None:
    finding = reachability.judge_nat(answers)
    assert finding.verdict is verdict and part in finding.text


@pytest.mark.parametrize(
    ("outcomes", "verdict", "part"),
    [
        ([], Verdict.UNKNOWN, "nobody to ask"),
        ([1, 2], Verdict.OK, "reached port 4001 at 8.8.8.8"),
        ([2, 3], Verdict.WARNING, "1 peer could not connect to port 4001 at 8.8.8.8"),
        ([3], Verdict.UNKNOWN, "just now"),
    ],
)
def test_doctor__reachability__is_told_from_dials_back(outcomes: list[int], verdict: Verdict, part: str) -> None:
    known = bootstraps.Surroundings(run_id=None, signed=None, listen_port=4001)
    known.seen = [seen("8.8.8.8", 700, outcome=each) for each in outcomes]
    finding = reachability.judge_reachability(known, is_listening=True)
    assert finding.verdict is verdict and part in finding.text
