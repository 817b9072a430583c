# SPDX-License-Identifier: GPL-2.0-only
"""Help of `copyscope simulate`: the options of `copyscope run` that a simulated machine supports."""

import argparse

from copyscope.base.arguments import UsageParser
from copyscope.plan import arguments
from copyscope.run.simulate.request import RUN_OPTIONS

DESCRIPTION = (
    "Boot a kernel in QEMU, send in this simulated machine, and count the instructions and cache misses of"
    " each copy with a model of the caches. Needs no root and no PMU."
)
EXAMPLES = """\
examples:
  copyscope simulate one_copy,zero_copy                 three boots
  copyscope simulate one_copy --size 1K,1M --seeds 1    one boot, no intervals
  copyscope simulate zero_copy --cache genoa,llc=64M:16 --kernel 7.x
  copyscope simulate -- ./program ARGUMENTS             a static program
"""
EPILOG = f"""\
{EXAMPLES}
Options of copyscope run that a simulated machine does not have are refused.

exit status: 0 all checks hold, 1 a check fails or the record could not be written, 2 wrong usage,
130 interrupted
"""
COMMON = (
    *("--impl", "--size", "--threads", "--topology", "--cache", "--kernel", "--seeds", "--fast", "--json"),
    "--explain",
    "--help-all",
)


def parser() -> UsageParser:
    """Return a parser that only prints the help. The parser of `copyscope run` parses the command lines."""
    result = arguments.parser("simulate", DESCRIPTION, EXAMPLES, EPILOG, COMMON)
    refused = vars(result.parse_args([])).keys() - RUN_OPTIONS | {"simulate"}
    result.describe(
        **dict.fromkeys(refused, argparse.SUPPRESS),
        seed="seed of the first boot; each further boot has the next seed",
    )
    return result
