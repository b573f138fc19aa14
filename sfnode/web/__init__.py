"""Door: `serve_page`. A node's page over HTTP, on trio: hypercorn speaks the protocol, starlette finds the answer.

Only those who have the extra `web` can import this room; the command line does so where somebody asks for a page.
"""

from sfnode.web.access_and_headers import PageAccess
from sfnode.web.server import serve_page
