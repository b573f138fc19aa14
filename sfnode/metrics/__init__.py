"""Doors: `exposition`, `serve_metrics`. A running node's figures for Prometheus, over HTTP on this machine."""

from sfnode.metrics.exposition import METRICS, Metric, MetricKind, exposition
from sfnode.metrics.scrape_server import METRICS_ADDRESS, metrics_socket, parse_metrics_address, serve_metrics

__all__ = [
    "METRICS",
    "METRICS_ADDRESS",
    "MetricKind",
    "Metric",
    "exposition",
    "metrics_socket",
    "parse_metrics_address",
    "serve_metrics",
]
