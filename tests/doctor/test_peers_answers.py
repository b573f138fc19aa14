"""What `sfnode doctor` makes of its peers' answers: whether others can dial."""

from __future__ import annotations

import pytest

from sfnode.doctor import bootstraps
from sfnode.doctor.findings import Verdict
from sfnode.network.transport.reachability import DialBack, ReachAnswer


def answer(host: str, outcome: int) -> ReachAnswer:
    return ReachAnswer(outcome=DialBack(outcome), unix_ms=0, host=host, port=700)


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
    known.answers = [answer("8.8.8.8", each) for each in outcomes]
    finding = bootstraps.judge_reachability(known, is_listening=True)
    assert finding.verdict is verdict and part in finding.text
