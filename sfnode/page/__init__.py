"""Door: `Page`. The content of a node's page, and its static files; `sfnode.web` serves them."""

from sfnode.page.address import LOOPBACK as LOOPBACK, PORT as PORT, PageAddress as PageAddress
from sfnode.page.assets import SERVED as SERVED, asset as asset
from sfnode.page.contributions import Contribution as Contribution, contributions_to as contributions_to
from sfnode.page.log_tail import LogTail as LogTail
from sfnode.page.node_page import Page as Page
from sfnode.page.published_run import publish_run as publish_run
from sfnode.page.report import write_report as write_report
from sfnode.page.run_facts import facts_of as facts_of
from sfnode.page.token import TOKEN_FILE as TOKEN_FILE, load_or_create_token as load_or_create_token
