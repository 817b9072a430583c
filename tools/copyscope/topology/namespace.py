"""An anonymous network namespace that lives exactly as long as this process.

A holder process sits in the namespace and reads a pipe whose only write end is ours. When we end, by SIGKILL
too, the kernel closes the pipe, the holder reads end-of-file and exits, and the kernel removes the namespace
with its links. Nothing is written under /run. The pipe is close-on-exec, so children started the ordinary way
(subprocess) do not prolong it; a bare os.fork() would.
"""

import subprocess
from pathlib import Path
from typing import Self

from copyscope.asking import line_of
from copyscope.complaints import Complaints
from copyscope.errors import why_not_started
from copyscope.escaping import one_line
from copyscope.topology.shell import LIMIT_S, TopologyError

# IPv6 is switched off in the namespace (not on the host): its neighbour and multicast chatter would be
# counted beside the measured bytes. A kernel without IPv6 has no such file.
HOLDER_SCRIPT = """
for file in /proc/sys/net/ipv6/conf/all/disable_ipv6 /proc/sys/net/ipv6/conf/default/disable_ipv6; do
    if [ -w "$file" ]; then echo 1 >"$file"; fi
done
echo ready
exec cat
"""
HOLDER_ARGV = ("unshare", "--net", "sh", "-c", HOLDER_SCRIPT)
EXIT_TIMEOUT_S = 2.0


class Namespace:
    """One held namespace; `pid` is the holder's, and /proc/PID/ns/net is the namespace."""

    def __init__(self) -> None:
        """Start the holder; call wait_ready() before using the namespace (several start at the same time)."""
        try:
            self._holder = subprocess.Popen(
                HOLDER_ARGV,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,  # Ctrl-C must not take the link away while the traffic is still draining
            )
        except OSError as error:
            raise TopologyError(f"topology: {why_not_started(HOLDER_ARGV[0], error)}") from None
        self.pid = self._holder.pid
        assert self._holder.stderr is not None
        self._complaints = Complaints(self._holder.stderr)

    def wait_ready(self) -> None:
        """Block until the holder is in its namespace; raises TopologyError when it could not make one."""
        assert self._holder.stdout is not None
        try:
            said = line_of(self._holder.stdout, LIMIT_S)
        except TimeoutError as error:
            raise TopologyError(
                f"topology: unshare --net: {error}: run it by hand to see what it waits for"
            ) from None
        if said != b"ready\n":
            odd = f"it said {said.decode(errors='replace')!r}" if said else "the holder process ended"
            reason = one_line("; ".join(self._complaints.lines()) or odd)
            raise TopologyError(
                f"topology: unshare --net: {reason}: run as root with CAP_SYS_ADMIN and CAP_NET_ADMIN"
                " (in a container: --privileged)"
            )

    @property
    def path(self) -> str:
        return f"/proc/{self.pid}/ns/net"

    def enter(self) -> tuple[str, ...]:
        """The argv prefix that runs a program inside, as the current user."""
        return ("nsenter", f"--net={self.path}", "--")

    def close(self) -> None:
        """End the holder; the kernel then removes the namespace, unless another process is still in it."""
        for pipe in (self._holder.stdin, self._holder.stdout):  # the third is read by its own thread
            if pipe is not None:
                pipe.close()
        try:
            self._holder.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # stopped or traced: end our own child by force
            self._holder.kill()
            self._holder.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def network_of(pid: int) -> int | None:
    """The number of a process's network namespace; None where it is ours, or cannot be read."""
    try:
        its, ours = (Path(f"/proc/{who}/ns/net").stat().st_ino for who in (pid, "self"))
    except OSError:
        return None
    return None if its == ours else its
