// SPDX-License-Identifier: GPL-2.0-only
/*
 * splice.bpf.c - watched programs: detects that a program takes bytes from a socket with splice(2), or maps them.
 *
 * sys_exit counts these bytes (volume.bpf.c), which is expensive. This hook reports to the collector when that hook is
 * needed (on_sight.h).
 */
#include "watch.bpf.h"

__u32 splices_seen;
/* Set once the hook that counts these bytes is attached. */
__u32 splices_counted;

/*
 * TCP has released received bytes: tcp_read_sock() for splice(2), tcp_zerocopy_receive() for getsockopt(2),
 * tcp_recvmsg() for other calls. The running system call shows which function it was.
 */
SEC("?tp_btf")
int BPF_PROG(on_splice_seen, struct sock *sk)
{
	struct system_call syscall;
	__u32 call;

	if (current_side() == SIDE_OTHER)
		return 0;
	call = current_call(&syscall);
	if ((call != CALL_SPLICE && call != CALL_MAP) || !in_watched_netns(sk))
		return 0;
	splices_seen = SPLICES_SEEN;
	if (!splices_counted)
		count_loss(LOSS_SPLICE_UNCOUNTED);
	return 0;
}
