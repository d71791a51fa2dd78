"""Command line options of `earshot cluster`."""

import argparse
from pathlib import Path

DEFAULT_PORT = 6399
"Port of the head. Ray's own default, 6379, is that of Redis."

DEFAULT_OBJECT_STORE_MB = 200
"Memory for large messages. Calls are smaller than 100 kB mostly and do not use it."

EPILOG = """The node runs until it is stopped, by Ctrl-C or a signal. Ray listens on every address
of the machine, so start and join refuse a machine with a public address unless --behind-firewall
says that nobody outside can reach it. Every machine needs the same token (cluster.token_file), the
same Python and the same version of Earshot.

exit codes:
  0  done; start, join: the node was stopped
  1  Ray failed
  2  wrong arguments or configuration; Ray is not installed; status: the cluster does not answer
"""


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `earshot cluster`."""
    parser.description = "Starts or joins a cluster of machines that run models with Ray."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    what = "run the head of a new cluster; makes the token if there is none"
    start = actions.add_parser("start", help=what, description=what)
    start.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"port of the head; default: {DEFAULT_PORT}"
    )
    what = "run a node of a cluster whose head runs on another machine"
    join = actions.add_parser("join", help=what, description=what)
    join.add_argument("head", metavar="ADDRESS:PORT", help="the head, as start has printed it")
    what = "show the machines of the cluster, and the models that run there"
    status = actions.add_parser("status", help=what, description=what)
    status.add_argument("--json", action="store_true", help="print it as JSON")
    for node in (start, join):
        node.add_argument(
            "--address",
            metavar="IP",
            help="private address of this machine; default: its only one",
        )
        node.add_argument("--cpus", type=int, metavar="N", help="processors; default: all")
        node.add_argument("--gpus", type=int, metavar="N", help="GPUs; default: all")
        node.add_argument(
            "--object-store-mb",
            type=int,
            default=DEFAULT_OBJECT_STORE_MB,
            metavar="MB",
            help=f"memory for large messages; default: {DEFAULT_OBJECT_STORE_MB}",
        )
        node.add_argument(
            "--behind-firewall",
            action="store_true",
            help="allow a machine that has a public address",
        )
    for action in (start, join, status):
        action.add_argument(
            "--config", type=Path, metavar="FILE", help="TOML file with the settings"
        )
