"""The options of ``sfnode join``: one `JoinOptions`, and the options that concern only the output."""

import click

from sfnode.cli import options
from sfnode.cli.option_values import SocketPath
from sfnode.event_log import LEVELS
from sfnode.metrics import METRICS_ADDRESS, parse_metrics_address
from sfnode.page import LOOPBACK, PORT, PageAddress
from sfnode.run import JoinOptions, RunSource, TrainingOptions, run_address

exit_option = options.field_option(JoinOptions, "is_exiting_when_finished")
join_options = options.group_of_fields(
    "options",
    JoinOptions,
    source=options.group_of_fields(
        "source",
        RunSource,
        bootstrap=options.run_address_options(run_address.parse_run_addresses),
        run_file=options.run_file_option,
    ),
    training=options.group_of_fields(
        "training",
        TrainingOptions,
        model=options.joiner_model_option,
        worker_socket=click.option(
            "--worker-socket",
            type=SocketPath,
            help="Use the training worker that listens on this socket, so that several nodes share one model in "
            "memory.",
        ),
    ),
    devices=options.device_options,
    web=click.option(
        "--web",
        type=options.CheckedText(PageAddress.parse),
        is_flag=False,
        flag_value=LOOPBACK,
        metavar="[HOST:PORT]",
        help="Serve a page that shows how the node is doing. Where other machines can reach it, a browser needs the "
        f"token that the node prints.  [default: no page; without an address {LOOPBACK}:{PORT} or the next free port]",
    ),
    metrics=click.option(
        "--metrics",
        type=options.CheckedText(parse_metrics_address),
        is_flag=False,
        flag_value=METRICS_ADDRESS,
        metavar="[HOST:PORT]",
        help="Show figures to Prometheus at http://HOST:PORT/metrics, without a password.  [default: none; without "
        f"an address {METRICS_ADDRESS}]",
    ),
)
output_options = options.together(
    click.option(
        "--log-level",
        type=click.Choice(list(LEVELS)),
        default="info",
        show_default=True,
        help="Show what is this important or more; `debug` shows every refused connection and every dial.",
    ),
    click.option("--verbose", "is_verbose", is_flag=True, help="Show the details of the start, too."),
    options.json_option,
)
