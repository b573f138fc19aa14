"""Door: `Page`. The content of a node's page, and its static files; `sfnode.web` serves them."""

from sfnode.page.address import LOOPBACK, PORT, PageAddress, open_page_socket, parse_page_address
from sfnode.page.assets import ICON, INDEX, SCRIPTS, STYLE, asset
from sfnode.page.contributions import Contribution, contributions_to
from sfnode.page.log_tail import LogTail
from sfnode.page.node_page import Page, PageSource, Sections
from sfnode.page.report import write_report
from sfnode.page.run_facts import facts_of
from sfnode.page.token import TOKEN_FILE, load_or_create_token

__all__ = [
    "Contribution",
    "ICON",
    "INDEX",
    "LOOPBACK",
    "LogTail",
    "PORT",
    "Page",
    "PageAddress",
    "PageSource",
    "SCRIPTS",
    "STYLE",
    "Sections",
    "TOKEN_FILE",
    "asset",
    "contributions_to",
    "load_or_create_token",
    "open_page_socket",
    "parse_page_address",
    "facts_of",
    "write_report",
]
