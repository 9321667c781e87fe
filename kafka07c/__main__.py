"""``python -m kafka07c``: the same as the command ``kafka07c``."""

import sys

from kafka07c.cli import main

sys.exit(main())
