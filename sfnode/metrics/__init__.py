"""Door: `serve_metrics`. A running node's figures for Prometheus, over HTTP."""

from sfnode.metrics.scrape_server import (
    METRICS_ADDRESS as METRICS_ADDRESS,
    is_shut as is_shut,
    metrics_socket as metrics_socket,
    parse_metrics_address as parse_metrics_address,
    serve_metrics as serve_metrics,
)
