"""The `clustercaps` command, also as `python -m clustercaps`."""

import sys

from clustercaps.utils.interrupts import silent_interrupts
from clustercaps.utils.waits import wait_briefly


def main() -> int:
    """Run the command; Ctrl-C ends it without a traceback, also while modules are imported."""
    wait_briefly()
    try:
        with silent_interrupts():
            from clustercaps import cli
        return cli.main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
