"""Door: `serve_metrics`. A running node's figures for Prometheus, over HTTP on this machine."""

from sfnode.metrics.scrape_server import (
    METRICS_ADDRESS as METRICS_ADDRESS,
    metrics_socket as metrics_socket,
    parse_metrics_address as parse_metrics_address,
    serve_metrics as serve_metrics,
)
