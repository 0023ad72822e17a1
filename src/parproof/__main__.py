"""`python -m parproof` is the command `parproof`."""

import sys

from parproof.cli import main

sys.exit(main())
