// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <unistd.h>

#include "splice.h"
#include "strategy.h"

/* Refuse --touch: the socket refers to the program's pages, and the kernel does not report when it has released them. */
static int vmsplice_open(struct flow *flow)
{
	const struct message_shape *shape = &flow->shape;

	if (flow->rewrites)
		return failure__set(&flow->failure, -EINVAL, "--touch: vmsplice sends memory by reference, and the kernel does "
				    "not report when it may be rewritten; leave --touch out");
	/* Two more slots for each field, because a field may begin and end inside a page. */
	return splice__open(flow, shape->size_bytes / sysconf(_SC_PAGESIZE) + 2 * shape->fields);
}

const struct strategy strategy_vmsplice = {
	.name = "vmsplice",
	.claim = { 0, 0, "one vmsplice() of the fields into a pipe, then one splice() from the pipe into the socket" },
	.gives_memory = true,
	.open = vmsplice_open,
	.close = splice__close,
	.send = splice__send_memory,
};
