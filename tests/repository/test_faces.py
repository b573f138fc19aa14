"""The rules of the faces catch what they are for, and let pass what comes close to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repository import faces
from tests.repository.architecture import Module, TreeRule, parse_file

LEDGER_FACE = '"""The two sets of records, behind one door: `Ledger`."""\n__all__ = ["Ledger"]\n'
NETWORK_FACE = '"""What a node says and hears: Network.\n\nMore."""\n__all__ = ("Network",)\n'
POLICY_FACE = '"""Whom to trust: `Reputation`."""\nfrom sfnode.network.policy.reputation import Reputation\n'
TREE = {
    "protocol/__init__.py": '"""Pure rules; their door is `protocol.ledger`. No clocks."""\n',
    "protocol/errors.py": "class Reject: ...\n",
    "protocol/ledger/__init__.py": LEDGER_FACE + "from protocol.ledger.ledger import Ledger\n",
    "protocol/ledger/ledger.py": "from protocol.ledger.buckets import Bucket\n",
    "protocol/ledger/buckets.py": "from protocol.errors import Reject\n",
    "sfnode/__init__.py": '"""A node; its `network` is one of the rooms."""\n__all__ = ["__version__"]\n',
    "sfnode/report.py": "x = 1\n",
    "sfnode/cli/__init__.py": '"""One file for each command, like `join`."""\n',
    "sfnode/cli/join.py": "x = 1\n",
    "sfnode/network/__init__.py": NETWORK_FACE,
    "sfnode/network/events.py": "x = 1\n",
    "sfnode/network/policy/__init__.py": POLICY_FACE,
    "sfnode/network/policy/reputation.py": "x = 1\n",
    "sfnode/network/sessions/__init__.py": '"""What is said: `Session`."""\n__all__ = ["Session"]\n',
    "sfnode/network/sessions/session.py": "x = 1\n",
    "benchmarks/__init__.py": "",
    "benchmarks/learn/jobs.py": "x = 1\n",
}

# For each rule: a file that is added or replaced, and breaks it exactly once.
OFFENDERS: tuple[tuple[TreeRule, str, str], ...] = (
    (faces.deep_imports, "sfnode/node/daemon.py", "from protocol.ledger.ledger import Ledger\n"),
    (faces.deep_imports, "sfnode/node/daemon.py", "from protocol.ledger import ledger\n"),
    (faces.deep_imports, "sfnode/node/daemon.py", "import protocol.ledger.ledger\n"),
    (faces.deep_imports, "sfnode/node/daemon.py", "from sfnode.network.events import Heard\n"),
    (faces.deep_imports, "sfnode/node/daemon.py", "from sfnode.network.policy import Reputation\n"),
    (faces.deep_imports, "sfnode/cli/run.py", "def run():\n    from sfnode.network.policy import Reputation\n"),
    (faces.deep_imports, "protocol/state/replica.py", "from protocol.ledger.ledger import Ledger\n"),
    (faces.deep_imports, "protocol/errors.py", "from protocol.ledger.buckets import Bucket\n"),
    (faces.deep_imports, "sfnode/network/__init__.py", "from sfnode.network.policy.reputation import Reputation\n"),
    (faces.deep_imports, "sfnode/network/sessions/x.py", "from sfnode.network.policy.reputation import Reputation\n"),
    (faces.deep_imports, "sfnode/network/policy/x.py", "from protocol.ledger.buckets import Bucket\n"),
    (faces.deep_imports, "benchmarks/learn/x.py", "from sfnode.network.policy import Reputation\n"),
    (faces.unlisted_names, "sfnode/node/daemon.py", "from protocol.ledger import Ledger, Bucket\n"),
    (faces.unlisted_names, "sfnode/network/sessions/x.py", "from sfnode.network.policy import address_book\n"),
    (faces.unlisted_names, "benchmarks/learn/x.py", "from sfnode import network, version\n"),
    (faces.borrowed_names, "protocol/ledger/x.py", "from protocol.ledger.buckets import Reject\n"),
    (
        faces.nameless_doors,
        "protocol/ledger/__init__.py",
        '"""Sets. Its door: Ledger."""\n__all__ = ["Ledger"]\n',
    ),
    (faces.nameless_doors, "protocol/ledger/__init__.py", '"""What a ledger holds."""\n__all__ = ["Ledger"]\n'),
    (faces.nameless_doors, "protocol/ledger/__init__.py", '__all__ = ["Ledger"]\n'),
    (faces.nameless_doors, "protocol/state/__init__.py", '"""What the sets imply."""\n'),
    (faces.hidden_names, "protocol/ledger/__init__.py", '"""Ledger."""\nfrom protocol.ledger.buckets import buckets\n'),
)
# Close to an offence, but not one.
CLEAN: tuple[tuple[TreeRule, str, str], ...] = (
    (faces.deep_imports, "sfnode/node/daemon.py", "from protocol.ledger import Ledger\nimport sfnode.network\n"),
    (faces.deep_imports, "sfnode/node/daemon.py", "from sfnode import report\nfrom protocol.errors import Reject\n"),
    (faces.deep_imports, "protocol/ledger/x.py", "from protocol.ledger.buckets import Bucket\n"),
    (faces.deep_imports, "sfnode/network/sessions/x.py", "from sfnode.network.events import Heard\n"),
    (faces.deep_imports, "sfnode/network/sessions/x.py", "from sfnode.network.policy import Reputation\n"),
    (faces.deep_imports, "benchmarks/x.py", "from benchmarks.learn.jobs import job\nimport torch.nn.functional\n"),
    (faces.deep_imports, "tests/network/test_x.py", "from protocol.ledger.buckets import Bucket\n"),
    (faces.unlisted_names, "sfnode/node/daemon.py", "from sfnode import __version__, report\n"),
    (faces.unlisted_names, "tests/network/test_x.py", "from protocol.ledger import Bucket\n"),
    (faces.borrowed_names, "protocol/ledger/x.py", "from protocol.errors import Reject\n"),
    (faces.nameless_doors, "protocol/state/__init__.py", '"""Sums: Replica. More."""\n__all__ = ["Replica"]\n'),
    (faces.nameless_doors, "benchmarks/learn/__init__.py", ""),
    (faces.hidden_names, "protocol/ledger/__init__.py", '"""Ledger."""\nfrom protocol.ledger import buckets\n'),
)


def tree(path: str = "sfnode/report.py", source: str = "x = 1\n") -> tuple[Module, ...]:
    files = TREE | {path: source}
    return tuple(parse_file(text, Path(name)) for name, text in sorted(files.items()))


@pytest.mark.parametrize(
    "rule", [faces.deep_imports, faces.unlisted_names, faces.borrowed_names, faces.hidden_names, faces.nameless_doors]
)
def test_faces__tree_that_keeps_them__has_no_offender(rule: TreeRule) -> None:
    assert list(rule(tree())) == []


@pytest.mark.parametrize(("rule", "path", "source"), OFFENDERS)
def test_faces__offending_source__is_named_once_with_its_place(rule: TreeRule, path: str, source: str) -> None:
    offenders = list(rule(tree(path, source)))
    assert len(offenders) == 1, offenders
    assert offenders[0].startswith(f"{path}:")


@pytest.mark.parametrize(("rule", "path", "source"), CLEAN)
def test_faces__allowed_source__is_not_named(rule: TreeRule, path: str, source: str) -> None:
    assert list(rule(tree(path, source))) == []
