"""Names that nodes give themselves: a signed text, which stands among the addresses of Hello and Peers (SPEC 8.9).

A name is for people to read, and anybody may take any name: nothing is decided by it.
"""

import base64
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from protocol.crypto import SIGNATURE_BYTES, Signer, is_signed
from protocol.errors import OperatorError
from protocol.wire import PeerId
from sfnode.network.policy.addresses import author_of_peer

NAME_LENGTH_MAX = 32
NAMES_MAX = 1_024  # of other nodes
_PREFIX = "name:"
_TAG = b"sfnode/name/1..."
_SECONDS_DIGITS_MAX = 11
# Letters, marks and symbols that show nothing, so that a name with one looks like the name without: fillers, joiners,
# selectors of variants, the empty Braille cell. SPEC 8.9 lets them pass; others are no letters by their category.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_AHEAD_S = 86_400  # a name signed by a clock further ahead would hold until then, whatever follows it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeName:
    """Holds a name that its node has signed.

    Attributes:
        seconds: when it was signed, since 1970; of two names the later one holds.
        text: the form on the wire.
    """

    author: bytes
    name: str
    seconds: int
    text: str


def parse_name(text: str) -> str:
    """Return a name that a person has typed. OperatorError: others would not show it as it is."""
    name = text.strip()
    if not is_fit(name) or _BLANK.search(name):
        raise OperatorError(f"{text[:40]!a} is no name: take 1 to {NAME_LENGTH_MAX} characters, none of them invisible")
    return name


def is_fit(name: str) -> bool:
    """Return whether a name is short, printable, and neither begins nor ends with a space."""
    return 0 < len(name) <= NAME_LENGTH_MAX and name.isprintable() and name == name.strip()


def sign_name(signer: Signer, run_id: bytes, name: str, seconds: int) -> NodeName:
    """Return a node's own name, signed for one run."""
    return _named(signer.author, name, seconds, signer.sign(_signed(run_id, seconds, name)))


def read_name_untrusted(text: str, author: bytes, run_id: bytes) -> NodeName | None:
    """Return the name in a text if ``author`` has signed it for this run; None for any other text."""
    kind, _, rest = text.partition(":")
    digits, _, rest = rest.partition(":")
    encoded, _, name = rest.partition(":")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= _SECONDS_DIGITS_MAX
    if f"{kind}:" != _PREFIX or not is_number or not is_fit(name):
        return None
    try:
        signature = base64.b64decode(encoded.encode("ascii"), altchars=b"-_", validate=True)
        signed = _signed(run_id, int(digits), name)
    except ValueError:
        return None
    found = _named(author, name, int(digits), signature)  # written again: Python's decoder takes "+" and "/" as well
    is_whole = len(signature) == SIGNATURE_BYTES and found.text == text
    return found if is_whole and is_signed(author, signed, signature) else None


def _named(author: bytes, name: str, seconds: int, signature: bytes) -> NodeName:
    encoded = base64.urlsafe_b64encode(signature).decode("ascii")
    return NodeName(author=author, name=name, seconds=seconds, text=f"{_PREFIX}{seconds}:{encoded}:{name}")


def _signed(run_id: bytes, seconds: int, name: str) -> bytes:
    return _TAG + run_id + f"{seconds}:{name}".encode()


class NameBook:
    """Holds the names of other nodes of one run, by peer.

    Attributes:
        has_contributed: whether an update of this key is held. Keys cost nothing: all others are forgotten first.
    """

    def __init__(self, run_id: bytes) -> None:
        self.has_contributed: Callable[[bytes], bool] = lambda _author: False
        self._run_id = run_id
        self._held: dict[str, NodeName] = {}

    def hear(self, peer: str, texts: Sequence[str]) -> None:
        """Take the name among the texts that were said of a peer, unless a later one is held."""
        said = next((text for text in texts if text.startswith(_PREFIX)), "")
        held = self._held.get(peer)
        if not said or (held is not None and held.text == said):
            return
        try:
            found = read_name_untrusted(said, author_of_peer(peer), self._run_id)
        except ValueError:
            return
        held_s = -1 if held is None else held.seconds
        if found is None or not held_s < found.seconds <= time.time() + _AHEAD_S:
            return
        self._held.pop(peer, None)
        self._held[peer] = found
        if len(self._held) > NAMES_MAX:
            others = (each for each, named in self._held.items() if not self.has_contributed(named.author))
            del self._held[next(others, next(iter(self._held)))]

    def texts(self) -> Mapping[PeerId, str]:
        """Return the signed names as they are passed on, the newest last."""
        return {PeerId(peer): found.text for peer, found in self._held.items()}

    def names(self) -> dict[str, str]:
        """Return the names by author, in hex, with what would not be seen in them as its number."""
        held = self._held.values()
        return {each.author.hex(): _BLANK.sub(lambda found: ascii(found[0])[1:-1], each.name) for each in held}
