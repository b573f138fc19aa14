"""Door: `Page`. The content of a node's page, and its static files; `sfnode.web` serves them."""

from sfnode.page.address import LOOPBACK, PORT, TOKEN_FILE, PageAddress, load_or_create_token
from sfnode.page.assets import SERVED, asset
from sfnode.page.node_page import LogTail, Page
from sfnode.page.report import publish_run, write_report
from sfnode.page.run_facts import Contribution, contributions_to, facts_of
