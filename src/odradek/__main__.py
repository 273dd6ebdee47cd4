"""`python -m odradek` is the `odradek` command."""

from __future__ import annotations

import sys

from odradek.cli.main import main

sys.exit(main())
