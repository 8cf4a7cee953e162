"""`python -m clustercaps` is the `clustercaps` command."""

import sys

from clustercaps.cli import main

if __name__ == "__main__":
    sys.exit(main())
