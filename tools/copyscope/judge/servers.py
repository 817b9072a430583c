"""Known servers and languages: what each remedy is called there. One row each. Pure."""

import re
from dataclasses import dataclass
from pathlib import PurePath

from copyscope.record.measured import Measured


@dataclass(frozen=True)
class Server:
    """A remedy is the setting or the call in the program's own words; None: this program cannot do it.

    name: empty: unknown, its remedies are system calls
    processes: names of its processes, a regular expression
    code: names of files with its code, or of its functions that copy, a regular expression
    together: several answers in one call, where each is one
    serves_files: with `sendfile` it sends files unchanged, unless it encrypts or compresses them
    over_tls: what it does with a file over TLS
    hidden: why it may send files without sendfile although it can
    """

    name: str
    processes: str
    code: str
    zerocopy: str | None = None
    sendfile: str | None = None
    splice: str | None = None
    io_uring: str | None = None
    larger: str | None = None
    together: str | None = None
    fewer: str | None = None
    ktls: str | None = None
    serves_files: bool = False
    over_tls: str | None = None
    hidden: str | None = None

    def is_called(self, name: str) -> bool:
        return re.fullmatch(self.processes, name) is not None

    def cannot(self) -> str:
        return f"{self.name} cannot do this"


SERVERS = (
    Server(
        "nginx",
        processes=r"nginx",
        code=r"nginx",
        sendfile="`sendfile on;`",
        larger="`output_buffers 2 256k;`",
        ktls="`ssl_conf_command Options KTLS;`",
        serves_files=True,
        over_tls="without kTLS nginx reads files that it sends over TLS",
        hidden="it may be off, or a filter that changes what is sent (gzip, sub) may want the bytes",
    ),
    Server(
        "HAProxy",
        processes=r"haproxy",
        code=r"haproxy",
        # Of HTTP `splice-auto` spliced nothing (2.6.12).
        splice="`option splice-response` (or `-request`)",
        larger="`tune.bufsize 65536`",
    ),
    Server(
        "Apache httpd",
        processes=r"httpd|apache2",
        code=r"httpd|apache2",
        sendfile="`EnableSendfile On`",
        # Files it maps and sends whole.
        larger="`ProxyIOBufferSize 65536`",
        serves_files=True,
    ),
    Server(
        "Redis",
        processes=r"redis-server",
        code=r"redis-server",
        together="pipelining in its clients",
    ),
    Server(
        "PostgreSQL",
        processes=r"postgres|postmaster",
        code=r"postgres",
    ),
    Server(
        "Java",
        processes=r"java",
        code=r"libjvm\.so",
        sendfile="`FileChannel.transferTo()`",
        splice="Netty's `spliceTo()`",
        over_tls="Netty's `SslHandler` wants `ChunkedFile` instead of `FileRegion`",
        hidden="it may read into buffers (`InputStream.transferTo()`, `ChunkedFile`)",
        io_uring="Netty's `IoUringIoHandler`",
        larger="a larger `ByteBuffer`",
        fewer="`ByteBuffer.allocateDirect()`",
    ),
    # Its main thread is called so from version 20 on.
    Server(
        "Node",
        processes=r"node|nodejs",
        code=r"node|nodejs|libnode\.so.*",
        larger="a larger `highWaterMark`",
        fewer="`socket.cork()`",
    ),
    Server(
        "Python",
        processes=r"(python|pypy)[\d.]*|gunicorn.*|uwsgi|uvicorn",
        code=r"(lib)?(python|pypy)[\d.]*(\.so.*|-c\.so)?",
        zerocopy="`sock.send(data, MSG_ZEROCOPY)`",
        sendfile="`socket.sendfile()`",
        splice="`os.splice()`",
        larger="larger blocks for `sendall()`",
        fewer="`sock.sendmsg([...])`",
        over_tls="`loop.sendfile()` and `SSLSocket.sendfile()` fall back to reads and writes there",
        hidden="it may use `read()` or `shutil.copyfileobj()`, which know of no socket",
    ),
    # Programs in Go have any name.
    Server(
        "Go",
        processes=r"(?!)",
        code=r"runtime\.memmove",
        zerocopy="`unix.MSG_ZEROCOPY`",
        sendfile="`http.ServeContent()` or `io.Copy(conn, file)`",
        splice="`io.Copy(conn, conn)`",
        larger="`bufio.NewWriterSize()`",
        fewer="`net.Buffers`",
        over_tls="`io.Copy()` to a `tls.Conn` reads and writes",
        hidden="a wrapper around the file or the connection (`bufio`, a struct of an `io.Writer`) may hide "
        "it from `io.Copy()`",
    ),
)
UNKNOWN = Server(
    "",
    processes="",
    code="",
    zerocopy="`MSG_ZEROCOPY`",
    sendfile="`sendfile(2)`",
    splice="`splice(2)`",
    io_uring="`io_uring`",
    larger="larger buffers for `send(2)`",
    fewer="`sendmsg(2)` of several buffers",
    ktls="`SSL_OP_ENABLE_KTLS` and `SSL_sendfile()`",
)
GO = next(one for one in SERVERS if one.name == "Go")


def server_of(raw: Measured) -> Server:
    """By the names of its processes; else by the code that ran in them; else UNKNOWN."""
    target = raw.watched
    comms = {target.comm or "", *(process.comm for process in target.pids)}
    rows = [row for row in raw.user_code or [] if row.samples]
    code = {PurePath(row.file).name for row in rows}
    code |= {row.symbol for row in raw.samples if row.side == "target" and row.category == "gather"}
    by_name = (one for one in SERVERS if any(map(one.is_called, comms)))
    by_code = (one for one in SERVERS if any(re.fullmatch(one.code, name) for name in code))
    made = GO if any(row.made_with == GO.name for row in rows) else UNKNOWN
    return next(by_name, None) or next(by_code, made)


# Libraries that change what a program sends: then no file goes out as it is.
CHANGES = re.compile(r"lib(ssl|crypto|gnutls|nss3|z|zstd|brotli\w*)[.-]")
# Of its samples in user mode: less is a handshake, or a checksum.
CHANGES_LEAST = 0.2


def changed_by(raw: Measured) -> str | None:
    """The library that encrypts or compresses, where much of the program's own time is in one."""
    rows = [row for row in raw.user_code or [] if row.samples]
    found = [row for row in rows if CHANGES.match(PurePath(row.file).name)]
    if not rows or sum(row.samples for row in found) < CHANGES_LEAST * sum(row.samples for row in rows):
        return None
    return PurePath(max(found, key=lambda row: row.samples).file).name
