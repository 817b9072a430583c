"""docs/reference/ways.md, made of results/kernels/ways: what the drill found on each kernel."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[2] / "results" / "kernels" / "ways"

PATHS = {
    "lo": "Over lo",
    "veth": "Over veth",
    "nics": "Over a network card (two emulated e1000 with a cable)",
    "tls": "Over lo with kTLS (TLS 1.3, AES-GCM-128, in software)",
    "unix": "AF_UNIX, stream",
}
MADE = "<!-- Made by `make check-kernels` from results/kernels/ways/*.json; the next run overwrites it. -->\n"
HEAD = """\
# Which ways to send are by reference

`copyscope drill` sends a buffer, rewrites it after the call has returned, and lets the receiver read only
then. What arrives changed was sent by reference. That is measured and not derived from a version or from
the name of a call, because kernels differ, and change.

    sudo copyscope drill --json this-kernel.json
    sudo copyscope drill --nics eth1,eth2                          # two cards with a cable, too
    sudo copyscope drill --expect results/kernels/ways/6.12.json   # status 1, and what has changed

Each way is tried five times at once, while the buffer waits its turn behind what the receiver has no room
for, and five times when all has arrived at the receiver's socket; the worst is told.

| it says | and your program |
|---|---|
| copied before return | may reuse the buffer as soon as the call has returned |
| late copy | may not; when all had arrived the buffer was free |
| by reference | may not before the receiver has read |
| refused | cannot send so on such a socket, or here; the reason stands beside it |

Of MSG_ZEROCOPY and SEND_ZC a notification tells when the buffer is free, and whether the kernel copied it
after all; of sendfile, splice and vmsplice nothing does.

"""
COPIERS = """\
## The function that copied

What copied within the call or later, and the function for which. What has kprobes is hooked; elsewhere
(`_copy_from_iter` is in lib/, without ftrace; this 6.18 has no kprobes) a timer takes kernel stacks. An empty
cell: nothing was copied, or no function of the kernel was seen that copied.

"""
FOOT = """\
## Why they differ

- **SEND_ZC** is new in 6.0 ([06a5464be84e](https://git.kernel.org/linus/06a5464be84e), "io_uring: wire send
  zc request type"): 5.10 answers EINVAL.
- **kTLS** is not a matter of the version: Debian's 5.10 has no module for it, nor has this 6.18. Where it
  is there, the cipher reads the buffer within the call and writes elsewhere: every way is copied before it
  returns, sendfile and vmsplice, too. MSG_ZEROCOPY and SEND_ZC are refused.
- **`skb_copy_ubufs`** ran in `__netif_receive_skb_core`, before anybody knew where a packet goes, and since
  6.17 runs in `ip_local_deliver_finish`, so that a packet that is forwarded is not copied
  ([d2527ad3a9e1](https://git.kernel.org/linus/d2527ad3a9e1), "net: preserve MSG_ZEROCOPY with forwarding").
- **`_copy_from_iter_full`** is `_copy_from_iter` since 5.14
  ([4b6c132b7da6](https://git.kernel.org/linus/4b6c132b7da6), "iov_iter: switch ..._full() variants of
  primitives to use of iov_iter_revert()").
- **`crypto_aead_encrypt`** is called by `tls_push_record`, which the compiler made a part of its caller
  `bpf_exec_tx_verdict` in this 7.2.
- Nothing else differs from 5.10 to 7.2: in particular, sendfile, splice and vmsplice still send pages that
  a program can rewrite.

lo and veth deliver within the call as long as the receiver has room, and a packet of MSG_ZEROCOPY or
SEND_ZC is copied at its delivery; one that waits in the socket is not copied yet. Over a card the receiver
has bytes of its own in any case: there sendfile and vmsplice have a "late copy", and nothing tells when.
The file is in `/var/tmp`; `--file DIR` chooses another directory, and with it the file system. Without root
veth is left out, with the reason. The buffer is 16 KiB. UDP is not tried.
"""


def kept_ways(name: str) -> Path:
    """Where the table of a kernel is, as `copyscope drill --json` writes it."""
    return KEPT / f"{name}.json"


def ways_page() -> str:
    """One table for each path, and in it a column for each kernel."""
    tables = [json.loads(path.read_text()) for path in KEPT.glob("*.json")]
    tables.sort(
        key=lambda table: [int(part) for part in table["kernel"].split("-")[0].split("+")[0].split(".")]
    )
    text = MADE + HEAD
    for path, title in PATHS.items():
        rows = {
            table["kernel"]: {row["way"]: cell(row) for row in table["ways"] if row["path"] == path}
            for table in tables
        }
        ways = dict.fromkeys(way for found in rows.values() for way in found)
        text += f"## {title}\n\n| way | " + " | ".join(rows) + " |\n" + "|---" * (len(rows) + 1) + "|\n"
        text += alike({way: [found.get(way, "not tried") for found in rows.values()] for way in ways})
        text += "\n"
    return text + copiers_table(tables) + FOOT


def copiers_table(tables: Sequence[dict[str, Any]]) -> str:
    """The function that copied: a row for each path and way of which it is known on some kernel."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for table in tables:
        for row in table["ways"]:
            if copier := row.get("copied_by"):
                said = f"`{copier['function']}` in `{copier['within']}`"
                found.setdefault((row["path"], row["way"]), {})[table["kernel"]] = said
    kernels = [table["kernel"] for table in tables]
    text = COPIERS + "| path | way | " + " | ".join(kernels) + " |\n" + "|---" * (len(kernels) + 2) + "|\n"
    for path in PATHS:
        cells = {
            way: [row.get(kernel, "") for kernel in kernels] for (at, way), row in found.items() if at == path
        }
        text += alike(cells, f"| {path} ")
    return text + "\n"


def alike(rows: Mapping[str, Sequence[str]], before: str = "") -> str:
    """Lines of a table: ways of which each kernel says the same are one."""
    ways: dict[tuple[str, ...], list[str]] = {}
    for way, cells in rows.items():
        ways.setdefault(tuple(cells), []).append(way)
    return "".join(f"{before}| {'; '.join(same)} | {' | '.join(cells)} |\n" for cells, same in ways.items())


def cell(row: dict[str, Any]) -> str:
    """One way in a few words; how long it took to arrive is a matter of the emulator."""
    if row["reason"] is not None:
        words: str = row["reason"]
        inner = words.rpartition("(")[2].rstrip(")")
        return f"refused: {inner.partition(',')[0]}"
    told = "" if row["notified"] is None else f"; notified: {row['notified']}"
    return f"{row['result']}{told}"
