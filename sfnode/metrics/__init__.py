"""Door: `serve_metrics`. A running node's figures for Prometheus, over HTTP on this machine."""

from sfnode.metrics.scrape_server import METRICS_ADDRESS, metrics_socket, parse_metrics_address, serve_metrics

__all__ = ["METRICS_ADDRESS", "metrics_socket", "parse_metrics_address", "serve_metrics"]
