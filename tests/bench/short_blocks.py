"""`copyscope run` with many short segments in the place of few long ones.

Two that lie side by side then see the same pace of the machine, so what one kind of segment costs is known
some four times better than by those of a default run.
"""

import sys

from copyscope.__main__ import main
from copyscope.plan import schedule

BLOCK_S = 0.3

if __name__ == "__main__":
    schedule.RUNNING_BLOCK_MAX_S = BLOCK_S
    sys.exit(main(["run", *sys.argv[1:]]))
