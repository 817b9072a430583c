"""The help of `copyscope simulate`: options of copyscope run, those of a simulated machine first."""

import argparse

from copyscope.arguments import UsageParser
from copyscope.plan import arguments
from copyscope.simulate.request import TAKEN

DESCRIPTION = (
    "Boot a kernel in QEMU, send there, and count the instructions and cache misses of each copy by a model"
    " of the caches. Needs no root and no PMU. Options that only a measured run has are refused by name."
)
EXAMPLES = """\
examples:
  copyscope simulate one_copy,zero_copy                      cache misses of each copy, three boots
  copyscope simulate one_copy --size 1K,64K,1M --seeds 1     one boot: fewer seconds, no intervals
  copyscope simulate zero_copy --cache genoa,llc=64M:16 --kernel 7.x
  copyscope simulate --json run.json -- ./program ARGUMENTS  a static program, over loopback in the guest
"""
EPILOG = f"""\
{EXAMPLES}
exit status: 0 all checks hold, 1 one fails, or the record could not be written, 2 wrong usage,
130 interrupted
"""
COMMON = (
    *("--impl", "--size", "--threads", "--topology", "--cache", "--kernel", "--seeds", "--fast", "--json"),
    "--explain",
    "--help-all",
)


def parser() -> UsageParser:
    """For its help alone: what is typed is read by copyscope run's."""
    made = arguments.parser("simulate", DESCRIPTION, EXAMPLES, EPILOG, COMMON)
    refused = vars(made.parse_args([])).keys() - TAKEN | {"simulate"}
    made.describe(
        **dict.fromkeys(refused, argparse.SUPPRESS),
        seed="seed of the first boot; each further boot has the next",
    )
    return made
