// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <unistd.h>

#include "splice.h"
#include "strategy.h"

/* What waits in a socket is the program's own pages, and there is no completion of vmsplice(2). */
static int vmsplice_open(struct flow *flow)
{
	const struct message_shape *shape = &flow->shape;

	if (flow->rewrites)
		return failure__set(&flow->failure, -EINVAL, "touch: vmsplice: memory that is still on its way would "
				    "change, and nothing tells when it is free: leave --touch out");
	/* Each field may begin and end inside of a page. */
	return splice__open(flow, shape->size_bytes / sysconf(_SC_PAGESIZE) + 2 * shape->fields);
}

const struct strategy strategy_vmsplice = {
	.name = "vmsplice",
	.claim = { 0, 0, "one vmsplice() of the fields into a pipe, one splice() from there into the socket" },
	.gives_memory = true,
	.open = vmsplice_open,
	.close = splice__close,
	.send = splice__send_memory,
};
