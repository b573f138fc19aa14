"""Where a page is served: what may be typed, which port it becomes, and the token of a page that others can reach."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from sfnode.page import TOKEN_FILE, PageAddress, load_or_create_token
from sfnode.storage.data_directory import DataDirectory


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1", "127.0.0.1", None, True),
        ("127.0.0.1:8000", "127.0.0.1", 8_000, True),
        ("localhost:8000", "localhost", 8_000, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),
        ("192.168.1.5", "192.168.1.5", None, False),
        ("[::1]:8000", "::1", 8_000, True),
        ("::1", "::1", None, True),
        ("[::]", "::", None, False),
    ],
)
def test_page_address__as_typed__is_understood(text: str, host: str, port: int | None, is_loopback: bool) -> None:
    address = PageAddress.parse(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, is_loopback)


@pytest.mark.parametrize(
    "text",
    ["", ":8000", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:http", "sfnode:6f1c@/ip4/1.2.3.4", "[::1"],
)
def test_page_address__anything_else__says_what_to_write(text: str) -> None:
    with pytest.raises(OperatorError, match=r"--web .* such as 127\.0\.0\.1:8420"):
        PageAddress.parse(text)


def test_page_socket__default_port_taken__takes_the_next() -> None:
    address = PageAddress(host="127.0.0.1", port=None)
    with address.listen() as first, address.listen() as second:
        assert second.getsockname()[1] > first.getsockname()[1]


def test_page_socket__named_port_taken__is_an_error_that_names_it() -> None:
    with PageAddress(host="127.0.0.1", port=None).listen() as first:
        port = first.getsockname()[1]
        with pytest.raises(OperatorError, match=rf"127\.0\.0\.1, port {port}: Address already in use"):
            PageAddress(host="127.0.0.1", port=port).listen()


def test_token__first_start_and_second__is_the_same_and_nobody_else_reads_it(tmp_path: Path) -> None:
    token, is_new = load_or_create_token(DataDirectory(tmp_path))
    assert (len(token), is_new, os.stat(tmp_path / TOKEN_FILE).st_mode & 0o777) == (32, True, 0o600)
    assert load_or_create_token(DataDirectory(tmp_path)) == (token, False)


@pytest.mark.parametrize(
    ("text", "mode", "reason"), [("t" * 32, 0o644, "other users"), ("short", 0o600, "holds no token")]
)
def test_token__file_that_is_not_to_be_trusted__is_refused(tmp_path: Path, text: str, mode: int, reason: str) -> None:
    path = tmp_path / TOKEN_FILE
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(OperatorError, match=reason):
        load_or_create_token(DataDirectory(tmp_path))
