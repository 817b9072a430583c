# SPDX-License-Identifier: GPL-2.0-only
"""Web page of `copyscope watch --serve`: the path of a watched program's bytes, with current numbers.

A short script fetches the numbers and the drawing every REFRESH_S seconds. Browsers without JavaScript load
the whole page again. The policy allows no other script, so that a name in a record cannot run one.
"""

import base64
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from copyscope import VERSION
from copyscope.base.spelling import for_html, format_bytes, format_minutes, one_line
from copyscope.record.run import Run
from copyscope.report import path_drawing
from copyscope.report.openmetrics import Family, LabelledValue

Samples = Mapping[str, Sequence[LabelledValue]]  # name of a metric -> its samples
# Interval between two requests of a page.
REFRESH_S = 2
STYLE = """\
:root{color-scheme:light dark;--ink:#1f2328;--soft:#59636e;--paper:#fff;--line:#d1d9e0;--link:#0969da}
@media (prefers-color-scheme:dark){
:root{--ink:#e6edf3;--soft:#9198a1;--paper:#0d1117;--line:#3d444d;--link:#4493f8}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:64rem;padding:1rem;color:var(--ink);background:var(--paper);
font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.4rem;line-height:1.2} h2{font-size:1.1rem} a{color:var(--link)}
p{margin:.4rem 0} li{margin:.2rem 0} footer,.time{color:var(--soft)}
footer{font-size:.875rem} .narrow{display:none}
@media (max-width:50rem){.narrow{display:block}}
.wide{overflow-x:auto;margin:1rem 0;padding:1rem 0;border:solid var(--line);border-width:1px 0}
svg{display:block;width:100%;min-width:48rem;height:auto}
[role=status]{border-left:4px solid #c93c00;padding-left:.75rem;font-weight:600}"""
SCRIPT = f"""\
async function refresh() {{
  try {{
    const answer = await fetch('/', {{signal: AbortSignal.timeout(5000)}});
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    for (const id of ['numbers', 'drawing'])
      document.getElementById(id).replaceChildren(...page.getElementById(id).childNodes);
    document.getElementById('silent').hidden = true;
  }} catch {{
    document.getElementById('silent').hidden = false;
  }}
  setTimeout(refresh, {1000 * REFRESH_S});
}}
setTimeout(refresh, {1000 * REFRESH_S});"""
PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
<noscript><meta http-equiv="refresh" content="{refresh_s}"></noscript>
</head>
<body>
<main>
<h1>{title}</h1>
<p id="silent" role="status" hidden>copyscope does not answer: it has ended, or this browser cannot reach it.
The numbers below are the last ones.</p>
<div id="numbers">
{numbers}
</div>
<div class="wide" id="drawing" tabindex="0" role="region" aria-label="Drawing of the path of a byte">
{drawing}
</div>
<p class="narrow time">The drawing is wider than this screen: move it sideways.</p>
<h2>How to read the drawing</h2>
<ul>
<li>A box is memory. Arrows show the way of the bytes: from the memory of the program that sends, through the
kernel (below the dashed line), to the memory of the program that receives.</li>
<li>A thick arrow is a copy: the CPU reads and writes every byte. Its text has the bytes copied in the sampled
second, the CPU time in nanoseconds (ns) that the copy costs for each KiB sent or received, and the share of
all CPU time that was used by the program, or by others for it.</li>
<li>A thin dashed arrow is no copy: the kernel passes on a reference to the same memory.</li>
<li>n/a means unknown. Work other than copies, such as TCP itself, is not drawn.</li>
</ul>
<p>Numbers for Prometheus: <a href="/metrics">/metrics</a>.</p>
</main>
<footer>copyscope {version}</footer>
<script>{script}</script>
</body>
</html>
"""


def _hash(text: str) -> str:
    """Return the source expression that allows an inline style or script in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# Value of the HTTP header Content-Security-Policy.
POLICY = (
    f"default-src 'none'; style-src {_hash(STYLE)} {_hash(path_drawing.STYLE)}; script-src {_hash(SCRIPT)}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class SampledRun(NamedTuple):
    """Record of a sampled second, and the Unix time of the second's end."""

    run: Run
    ended_s: float


def write(name: str, families: Iterable[Family], sampled: SampledRun | None, interval_s: float) -> bytes:
    """Return the page as HTML.

    name: name of the watched program
    families: current metrics of the program; none before the first reading
    sampled: the last sampled second in which the program sent or received, or None
    interval_s: one second of this interval is sampled
    """
    samples = {family.name: list(family.samples) for family in families}
    return PAGE.format(
        title=for_html(one_line(f"{name}: the path of a byte")),
        style=STYLE,
        script=SCRIPT,
        refresh_s=REFRESH_S,
        version=VERSION,
        numbers="\n".join(_numbers(samples, sampled, interval_s)),
        drawing=path_drawing.draw(sampled.run)
        if sampled
        else "<p>Nothing to draw yet: no bytes were measured.</p>",
    ).encode()


def _numbers(samples: Samples, sampled: SampledRun | None, interval_s: float) -> Iterator[str]:
    """Yield paragraphs: totals with the time of their reading, and the time of the sampled second.

    samples: name of a metric -> its samples
    """
    read_s = _sum(samples, "read_timestamp_seconds")
    if read_s:
        sent, received = (_sum(samples, "socket_bytes", direction) for direction in ("send", "receive"))
        processes = _sum(samples, "program_processes")
        yield (
            f"<p>Sent <b>{format_bytes(sent)}</b> and received <b>{format_bytes(received)}</b> through "
            "sockets since copyscope began to watch. "
            f'Running processes: {processes:g}. <span class="time">Read {_age(read_s)}.</span></p>'
        )
        if not processes:
            yield "<p>The program does not run now; copyscope waits for it.</p>"
    else:
        yield "<p>copyscope starts to watch the program: no numbers were read yet.</p>"
    schedule = f"copyscope samples one second of every {interval_s:g} s"
    if sampled:
        yield (
            f'<p>The drawing shows one second, <span class="time">sampled {_age(sampled.ended_s)}</span>: '
            f"{schedule}, and leaves out seconds without bytes.</p>"
        )
    else:
        yield (
            f"<p>{schedule}. The drawing appears after the first sampled second in which the "
            "program sends or receives.</p>"
        )


def _sum(samples: Samples, name: str, direction: str | None = None) -> float:
    """Return the sum of a metric's samples, or only of those with this label `direction`."""
    rows = samples.get(name, ())
    return sum(value or 0.0 for labels, value in rows if direction in (None, labels.get("direction")))


def _age(unix_s: float) -> str:
    """Format how long ago a time was, and the time: `3 s ago, at 04:35:10 UTC`."""
    clock = time.strftime("%H:%M:%S", time.gmtime(unix_s))
    return f"{format_minutes(time.time() - unix_s)} ago, at {clock} UTC"
