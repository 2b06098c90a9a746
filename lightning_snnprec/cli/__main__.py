"""`python -m lightning_snnprec.cli`, the same as `snnprec`."""

import sys

from lightning_snnprec.cli import main

sys.exit(main())
