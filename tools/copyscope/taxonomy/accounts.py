# SPDX-License-Identifier: GPL-2.0-only
"""Table of the ledger's accounts, with their names, texts and colours, and sums over accounts.

An account is a copy of the payload, or work that replaces a copy. All other work belongs to stages. Pure.
"""

from dataclasses import dataclass
from typing import Literal

Context = Literal["process", "softirq", "user"]
# Terms of a sum over accounts, as `copyscope crossover -v` prints it.
Group = Literal["copies", "pin", "completion", "mapped", "cipher"]
# Parts of the path of a byte, in its order: before the send call, in the call, between the two sockets, in
# the receive call; and the way back of a completion notice.
Leg = Literal["program", "send call", "way", "receive call", "notice"]
# Remedies. Account.saved_by lists the remedies that would save the work of an account.
Remedy = Literal["MSG_ZEROCOPY", "splice", "fewer user copies"]
# Names of the flows of bytes and calls that ledger/flows.py computes.
ByteSource = Literal[
    "file_reads",
    "own_copies",
    "own_ciphers",
    "copied_in",
    "referenced",
    "encrypted",
    "copied_late",
    "copied_silently",
    "completions",
    "decrypted",
    "copied_out",
    "copied_to_relay",
    "mapped_pages",
]
# Names of colours in the palette of report/plots/colours.py.
Colour = Literal["black", "orange", "sky", "green", "yellow", "blue", "vermillion", "purple"]


@dataclass(frozen=True, kw_only=True)
class Account:
    """An account of the ledger. `name` is its id in taxonomy.tsv, in records and in exports.

    side, context: side and context of its work in our own traffic; a watched process has one side, `target`
    bytes_from: flow that gives its bytes and calls; None if they are unknown, for the reason in `uncounted`
    arrow: thick (copy), thick and orange (late: a copy that zero-copy did not avoid), or dashed (no copy)
    leg: part of the path where the drawings show the account; None: no drawing shows it
    colour, hatch: fill of its bars; matplotlib defines the hatches
    title: name of its row on the screens, in the page, the plots and the drawing
    caption: text of its box in the path that the terminal shows
    line: meaning of the account in at most 78 characters; meaning: full explanation
    sentence: subject and verb of `... 38 % of its CPU time`
    column: heading of its column in the table of threads; empty: no column
    label: shorter title for the drawing of cache lines
    step: step of the waterfall that the account shares with another account
    appeared, amount: words for a late copy that a comparison finds: `late copies appeared`,
        `38 % of the bytes late`
    rare: True to leave the account out of the list of accounts that were not seen
    saved_by: remedies that would save the work of this account
    """

    name: str
    title: str
    side: Literal["sender", "receiver"]
    context: Context
    group: Group
    arrow: Literal["copy", "late", "none"]
    colour: Colour
    hatch: str
    caption: str
    line: str
    sentence: str
    meaning: str
    bytes_from: ByteSource | None = None
    uncounted: str = "no hook counts these bytes; their time is sampled"
    leg: Leg | None = None
    column: str = ""
    label: str = ""
    step: str = ""
    appeared: str = ""
    amount: str = ""
    rare: bool = False
    saved_by: tuple[Remedy, ...] = ()

    @property
    def is_copy(self) -> bool:
        """True if the CPU reads every byte and writes it again. A cipher does so, too."""
        return self.arrow != "none"


# All accounts, in the order in which a byte passes them. The screens have the same order.
TABLE = (
    Account(
        name="file_read",
        title="copy from the page cache",
        side="sender",
        context="process",
        bytes_from="file_reads",
        group="copies",
        arrow="copy",
        leg="program",
        colour="green",
        hatch="..",
        caption="from the page cache: a file -> the program",
        line="read() and similar calls copy a file from the page cache to the program",
        sentence="the copy from the page cache takes",
        column="cache read",
        meaning="read(), pread(), readv() and preadv() copy a file from the page cache to the program. "
        "sendfile() and splice() send these pages by reference instead. Mapped bytes are not counted; with "
        "O_DIRECT nothing is copied from the cache.",
    ),
    Account(
        name="gather",
        title="program's own memcpy",
        side="sender",
        context="user",
        bytes_from="own_copies",
        group="copies",
        arrow="copy",
        leg="program",
        colour="purple",
        hatch="//",
        caption="program's own memcpy: fields -> one buffer",
        line="memcpy() in the program itself, which the kernel cannot see",
        sentence="memcpy inside the program takes",
        column="memcpy",
        label="own memcpy",
        saved_by=("fewer user copies",),
        meaning="The program itself copies, with memcpy() or the like, before it sends: the fields of a "
        "message into one buffer, for example, the first copy of a two-copy send. The kernel cannot see "
        "this copy. copyscope's own traffic times it; in a watched program it is sampled.",
    ),
    Account(
        name="user_encrypt",
        title="cipher in the program",
        side="sender",
        context="user",
        bytes_from="own_ciphers",
        group="cipher",
        arrow="copy",
        leg="program",
        colour="orange",
        hatch="//",
        caption="cipher in the program: plaintext <-> ciphertext",
        line="the cipher is a copy: it reads every byte and writes it again",
        sentence="its own cipher takes",
        column="cipher",
        rare=True,
        meaning="The program or its library (OpenSSL, GnuTLS, Go's crypto/tls) encrypts what it sends and "
        "decrypts what it receives. The cipher is a copy: it reads every byte and writes it again, so no "
        "page of a file can be sent unchanged. With kTLS the kernel encrypts instead, and sendfile works.",
    ),
    Account(
        name="copy_in",
        title="copy into the kernel",
        side="sender",
        context="process",
        bytes_from="copied_in",
        group="copies",
        arrow="copy",
        leg="send call",
        colour="blue",
        hatch="",
        caption="into the kernel: user -> socket buffer",
        line="the send call copies the bytes from the program's memory into the kernel",
        sentence="the copy into the kernel takes",
        column="copy in",
        label="copy to kernel",
        saved_by=("MSG_ZEROCOPY", "splice"),
        meaning="The kernel copies the bytes from the program's memory into its own socket buffer, inside "
        "the send call. After it the program may reuse its buffer at once.",
    ),
    Account(
        name="pin",
        title="page pinning",
        side="sender",
        context="process",
        bytes_from="referenced",
        group="pin",
        arrow="none",
        leg="send call",
        colour="yellow",
        hatch="xx",
        caption="page pinning: the packet refers to user pages",
        line="no copy: the kernel holds pages, of the program or a file, and sends them",
        sentence="page pinning takes",
        meaning="No copy: the kernel takes references on pages and puts them into the packet: the program's "
        "(MSG_ZEROCOPY, SEND_ZC, vmsplice), or those of a file or another socket (sendfile, splice). This "
        "row is the cost of finding, holding and tracking every page.",
    ),
    Account(
        name="encrypt",
        title="encryption",
        side="sender",
        context="process",
        bytes_from="encrypted",
        group="cipher",
        arrow="copy",
        leg="send call",
        colour="yellow",
        hatch="..",
        caption="encryption: the cipher writes into kernel pages",
        line="kTLS: the cipher reads plaintext and writes ciphertext into kernel pages",
        sentence="encrypting (kTLS) takes",
        column="kTLS",
        meaning="kTLS: the cipher reads plaintext and writes ciphertext into pages of the kernel. It is the "
        "copy of such a connection. Whole records are read in the program's memory (page pinning), but parts "
        "of a record are copied first (copy into the kernel). With an offload the network card encrypts, and "
        "this row is empty.",
    ),
    Account(
        name="deferred",
        title="late copy",
        side="sender",
        context="softirq",
        bytes_from="copied_late",
        group="copies",
        arrow="late",
        leg="way",
        colour="vermillion",
        hatch="\\\\",
        caption="late copy: user pages -> kernel pages",
        line="the copy that zero-copy avoided, made after all, later than the send call",
        sentence="the late copy takes",
        column="late copy",
        appeared="late copies",
        amount="late",
        meaning="The copy that zero-copy avoided, made after all: the packet is about to reach a receiver on "
        "the same machine. That receiver could keep the packet for ever, so the kernel copies it into pages "
        "of its own.",
    ),
    Account(
        name="silent",
        title="hidden copy",
        side="sender",
        context="softirq",
        bytes_from="copied_silently",
        group="copies",
        arrow="late",
        leg="way",
        colour="black",
        hatch="",
        caption="hidden copy: packet -> another packet",
        line="a copy on the way that completion notices do not report",
        sentence="hidden copies on the way take",
        column="hidden copy",
        step="late copy",
        appeared="hidden copies",
        amount="on the way",
        meaning="A copy that the completion flag does not show: the kernel needed the packet in another form "
        "(for XDP, or in one piece) and copied it without telling the program.",
    ),
    Account(
        name="completion",
        title="completion notices",
        side="sender",
        context="process",
        bytes_from="completions",
        group="completion",
        arrow="none",
        leg="notice",
        colour="orange",
        hatch="..",
        caption="completion notices: the buffer is free again",
        line="the kernel tells the program which buffers it may use again",
        sentence="completion notices take",
        meaning="The cost of knowing when a buffer is free again: the kernel drops its references and queues "
        "a notification, and the program reads it from the socket's error queue.",
    ),
    Account(
        name="decrypt",
        title="decryption",
        side="receiver",
        context="process",
        bytes_from="decrypted",
        group="cipher",
        arrow="copy",
        leg="receive call",
        colour="sky",
        hatch="xx",
        caption="decryption: the cipher writes the plaintext",
        line="kTLS: the cipher decrypts what arrived",
        sentence="decrypting (kTLS) takes",
        column="kTLS in",
        step="encryption",
        meaning="kTLS: the cipher decrypts the received bytes into the receiver's memory. If it cannot, it "
        "decrypts into pages of the kernel, which are then copied out (copy to the receiver). With TLS 1.3 "
        "it never can, because only the decrypted record shows where it ends.",
    ),
    Account(
        name="copy_out",
        title="copy to the receiver",
        side="receiver",
        context="process",
        bytes_from="copied_out",
        group="copies",
        arrow="copy",
        leg="receive call",
        colour="sky",
        hatch="--",
        caption="to the receiver: socket buffer -> user",
        line="the receive call copies the bytes from the kernel into a program's memory",
        sentence="the copy to the program takes",
        column="copy out",
        label="copy to receiver",
        saved_by=("splice",),
        meaning="The kernel copies the bytes from the socket buffer into the receiver's memory, inside the "
        "receive call. No send strategy can avoid it.",
    ),
    Account(
        name="mapped",
        title="pages mapped",
        side="receiver",
        context="process",
        bytes_from="mapped_pages",
        group="mapped",
        arrow="none",
        leg="receive call",
        colour="green",
        hatch="||",
        caption="pages mapped: pages of packets in the receiver's memory",
        line="no copy: pages of packets are mapped into the receiver's memory",
        sentence="mapping received pages takes",
        meaning="No copy: TCP_ZEROCOPY_RECEIVE maps pages of packets into the receiver's memory, and unmaps "
        "the pages of the previous call. Every processor that runs the program must forget the old "
        "addresses. Only whole pages can be mapped; the rest is copied (copy to the receiver).",
    ),
    Account(
        name="tun",
        title="copy through tun or tap",
        side="receiver",
        context="process",
        bytes_from=None,
        group="copies",
        arrow="copy",
        leg=None,
        colour="orange",
        hatch="xx",
        caption="tun or tap: the program <-> a packet buffer",
        line="each packet of the tunnel, or of the virtual machine, is copied once",
        sentence="copying packets to and from a tun device takes",
        uncounted="the bytes of packets that go through a tun device are not counted",
        rare=True,
        meaning="The program moves whole packets through a tun or tap device: a tunnel, or the network card "
        "of a virtual machine (QEMU, vhost). Each packet is copied between the program's or the guest's "
        "memory and a packet buffer of the kernel.",
    ),
)
ACCOUNTS = {account.name: account for account in TABLE}
# Names of the accounts that are plain copies, without ciphers.
COPIES = tuple(account.name for account in TABLE if account.group == "copies")
# Names of the accounts of copies after the send call, which zero-copy did not avoid.
LATE = tuple(account.name for account in TABLE if account.arrow == "late")
# Names of the accounts of work that zero-copy adds: holding pages, and reporting when buffers are free.
ZEROCOPY_PRICE = tuple(account.name for account in TABLE if account.group in ("pin", "completion"))
# Names of the accounts of work in the memory of the program.
IN_USER_MODE = tuple(account.name for account in TABLE if account.context == "user")
# Names of the accounts of copies inside the send call, and inside the receive call.
SEND_COPIES, RECEIVE_COPIES = (
    tuple(account.name for account in TABLE if account.group == "copies" and account.leg == leg)
    for leg in ("send call", "receive call")
)

# Title of each stage of work that belongs to no account, in the order of the screens.
STAGES = {
    "syscall": "system calls",
    "skb_alloc": "packet buffers",
    "tcp_ip": "TCP/IP",
    "device": "network device",
    "softirq": "softirq",
    "wakeup_sched": "waking, scheduling",
    "lock": "locks",
    "memory": "memory management",
    "irq": "interrupts",
    "other_packets": "packets of others",
    "user": "program's other work",
    "instruments": "copyscope itself",
    "unattributed": "not explained",
}
# Stages with a cost that depends on the number of packets.
PACKET_STAGES = ("skb_alloc", "tcp_ip", "device", "softirq")


def saved_by(remedy: Remedy) -> tuple[str, ...]:
    """Return the names of the accounts whose cost a remedy would save."""
    return tuple(account.name for account in TABLE if remedy in account.saved_by)


def called(name: str, *, watched: bool, side: str | None = None) -> str:
    """Return the title of the account or stage `name`.

    If a process is `watched`, the title has `the program` instead of `the receiver`; for the side `sender`,
    where a relay receives, it has `the relay`.
    """
    if name not in ACCOUNTS:
        return STAGES.get(name, name)
    title = ACCOUNTS[name].title
    if watched or side == "sender":
        return title.replace("the receiver", "the program" if watched else "the relay")
    return title
