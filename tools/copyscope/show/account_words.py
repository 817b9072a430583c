"""What an account of the ledger is called in each place that shows it: a row for each, and no other list."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Words:
    """Of one account. `arrow`: how the path is drawn there; what is no copy is thin and dashed."""

    step: str
    arrow: Literal["copy", "late", "none"]
    caption: str
    in_a_line: str
    meaning: str


# In the order of `ACCOUNTS`.
WORDS = {
    "file_read": Words(
        step="copy from the page cache",
        arrow="copy",
        caption="COPY  from the page cache: a file -> the program",
        in_a_line="read() and its like copy a file from the page cache to the program",
        meaning="read(), pread(), readv() and preadv() copy a file from the page cache to the program. "
        "sendfile() and splice() send these pages by reference instead. Mapped bytes are not counted; "
        "with O_DIRECT nothing is copied from the cache.",
    ),
    "gather": Words(
        step="program's own memcpy",
        arrow="copy",
        caption="COPY  program's own memcpy: fields -> one buffer",
        in_a_line="memcpy() in the program itself: the kernel knows nothing of it",
        meaning="The program itself copies, with memcpy() or the like, before it sends: the fields of a "
        "message into one buffer, for example, copy number one of a two-copy send. The kernel knows nothing "
        "of it. copyscope's own traffic times it; of a watched program it is sampled.",
    ),
    "user_encrypt": Words(
        step="cipher in the program",
        arrow="copy",
        caption="COPY  cipher in the program: plaintext <-> ciphertext",
        in_a_line="the cipher is a copy: it reads every byte and writes it again",
        meaning="The program or its library (OpenSSL, GnuTLS, Go's crypto/tls) encrypts what it sends and "
        "decrypts what it receives. The cipher is a copy: it reads every byte and writes it again, so that "
        "no page of a file can leave as it is. With kTLS the kernel's cipher does it, and sendfile works.",
    ),
    "copy_in": Words(
        step="copy into the kernel",
        arrow="copy",
        caption="COPY  into the kernel: user -> socket buffer",
        in_a_line="the send call copies the bytes from the program's memory into the kernel",
        meaning="The kernel copies the bytes from the program's memory into its own socket buffer, inside "
        "the send call. After it the program may reuse its buffer at once.",
    ),
    "pin": Words(
        step="page pinning",
        arrow="none",
        caption="no copy  page pinning: the packet refers to user pages",
        in_a_line="no copy: the kernel holds pages, of the program or a file, and sends them",
        meaning="No copy: the kernel takes references on pages and puts them into the packet: the program's "
        "(MSG_ZEROCOPY, SEND_ZC, vmsplice), or those of a file or another socket (sendfile, splice). "
        "It must find and hold every page and keep account of them, and that is what this row costs.",
    ),
    "encrypt": Words(
        step="encryption",
        arrow="copy",
        caption="COPY  encryption: the cipher writes into kernel pages",
        in_a_line="kTLS: the cipher reads plaintext and writes ciphertext into kernel pages",
        meaning="kTLS: the cipher reads plaintext and writes ciphertext into pages of the kernel. It is the "
        "copy of such a connection: whole records are read where the program has them (page pinning), "
        "parts of one are copied first (copy into the kernel). With an offload a network card does it, and "
        "this row is empty.",
    ),
    "deferred": Words(
        step="late copy",
        arrow="late",
        caption="COPY  late copy: user pages -> kernel pages",
        in_a_line="the copy that zero-copy avoided, made after all, later than the send call",
        meaning="The copy that zero-copy avoided, made after all: the packet is about to reach a receiver on "
        "the same machine, which could keep it for ever, so the kernel copies it into pages of its "
        "own.",
    ),
    "silent": Words(
        step="hidden copy",
        arrow="late",
        caption="COPY  hidden copy: packet -> another packet",
        in_a_line="a copy on the way that completion notices do not report",
        meaning="A copy that the completion flag does not show: the kernel needed the packet in another form"
        " (for XDP, or in one piece) and copied it without telling the program.",
    ),
    "completion": Words(
        step="completion notices",
        arrow="none",
        caption="no copy  completion notices: the buffer is free again",
        in_a_line="the kernel tells the program which buffers it may use again",
        meaning="The cost of knowing when a buffer is free again: the kernel drops its references and "
        "queues a notification, the program reads it from the socket's error queue.",
    ),
    "decrypt": Words(
        step="decryption",
        arrow="copy",
        caption="COPY  decryption: the cipher writes the plaintext",
        in_a_line="kTLS: the cipher decrypts what arrived",
        meaning="kTLS: the cipher decrypts what arrived, into the receiver's memory where it can, else into "
        "pages of the kernel that are copied out then (copy to the receiver): with TLS 1.3 always, because "
        "only the decrypted record shows where it ends.",
    ),
    "copy_out": Words(
        step="copy to the receiver",
        arrow="copy",
        caption="COPY  to the receiver: socket buffer -> user",
        in_a_line="the receive call copies the bytes from the kernel into a program's memory",
        meaning="The kernel copies the bytes from the socket buffer into the receiver's memory, inside the "
        "receive call. No send strategy can avoid it.",
    ),
    "mapped": Words(
        step="pages mapped",
        arrow="none",
        caption="no copy  pages mapped: pages of packets in the receiver's memory",
        in_a_line="no copy: pages of packets are mapped into the receiver's memory",
        meaning="No copy: TCP_ZEROCOPY_RECEIVE maps pages of packets into the receiver's memory, and takes "
        "away those of the call before; every processor that runs the program must forget the old "
        "addresses. Only whole pages can be mapped, the rest is copied (copy to the receiver).",
    ),
    "tun": Words(
        step="copy through tun or tap",
        arrow="copy",
        caption="COPY  tun or tap: the program <-> a packet buffer",
        in_a_line="each packet of the tunnel, or of the virtual machine, is copied once",
        meaning="The program moves whole packets through a tun or tap device: a tunnel, or the network "
        "card of a virtual machine (QEMU, vhost). Each is copied between the program's or the guest's memory "
        "and a packet buffer of the kernel.",
    ),
}

COPIES = {name: words.step for name, words in WORDS.items()}
# All other work: stages.
WORK = {
    "syscall": "system calls",
    "skb_alloc": "packet buffers",
    "tcp_ip": "TCP/IP",
    "device": "network device",
    "softirq": "softirq",
    "wakeup_sched": "waking, scheduling",
    "lock": "locks",
    "memory": "memory management",
    "irq": "interrupts",
    "user": "program's other work",
    "instruments": "copyscope itself",
    "unattributed": "not explained",
}


def called(name: str, *, watched: bool, side: str | None = None) -> str:
    """What a reader is told of an account or a stage, where it matters of this side: a relay is a sender."""
    if name == "copy_out" and (watched or side == "sender"):
        return f"copy to the {'program' if watched else 'relay'}"
    return COPIES.get(name) or WORK.get(name, name)
