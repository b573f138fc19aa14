"""A basis that another release made, over the wire: it is said so, and the peer is not asked again and again."""

from __future__ import annotations

import pytest

from protocol.errors import OperatorError
from sfnode.network.sessions.channel import Channel
from tests.network.test_file_download import BASIS, Fetch, part, serving
from tests.support.network_nodes import address_of


async def test_fetch_basis__all_nodes_have_one_of_another_length__another_release_made_it_and_no_more_tries() -> None:
    async def shorter(channel: Channel, offset: int) -> None:
        await channel.send_now(part(BASIS[:-1], offset))

    async def whole(channel: Channel, offset: int) -> None:
        await channel.send_now(part(BASIS, offset))

    fetched = Fetch()
    async with serving(8, shorter) as first, serving(9, shorter) as second, serving(7, whole) as third:
        with pytest.raises(OperatorError, match=r"gives a basis .* another release of sfnode: .*Use that one"):
            await fetched.run(address_of(first), address_of(second))
        assert await fetched.run(address_of(first), address_of(third)) == BASIS
    assert {reason.split(":")[0] for reason in fetched.reasons} == {
        "it gives a basis that was made with another release of sfnode"
    }
