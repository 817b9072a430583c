// SPDX-License-Identifier: GPL-2.0
/*
 * splice.bpf.c - a program that we did not write: does it take bytes out of a socket with splice(2), or map them?
 *
 * They are counted at sys_exit (volume.bpf.c), which is dear: this says when that is needed (on_sight.h).
 */
#include "watch.bpf.h"

__u32 splices_seen;
/* The hook that counts their bytes is there. */
__u32 splices_counted;

/*
 * TCP has given bytes away (tcp_read_sock() for splice(2), tcp_zerocopy_receive() for getsockopt(2), tcp_recvmsg() for others): by
 * which call is the question.
 */
SEC("?tp_btf")
int BPF_PROG(on_splice_seen, struct sock *sk)
{
	struct system_call made;
	__u32 call = current_call(&made);

	if ((call != CALL_SPLICE && call != CALL_MAP) || !in_watched_netns(sk) || current_side() == SIDE_OTHER)
		return 0;
	splices_seen = 1;
	if (!splices_counted)
		count_loss(LOSS_SPLICE_UNCOUNTED);
	return 0;
}
