"""Door: `serve_metrics`. A running node's figures for Prometheus, over HTTP."""

from sfnode.metrics.scrape_server import METRICS_ADDRESS, is_shut, metrics_socket, parse_metrics_address, serve_metrics
