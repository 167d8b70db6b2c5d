"""``python -m tests.bench.field.broker``: see `tests.bench.field.broker.command`."""

from __future__ import annotations

import sys

from tests.bench.field.broker.command import main

sys.exit(main())
