// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <unistd.h>

#include "splice.h"
#include "strategy.h"

/* Refuse --touch: the socket refers to pages of the file, and the kernel does not report when it has released these pages. */
static int sendfile_open(struct flow *flow)
{
	if (flow->rewrites)
		return failure__set(&flow->failure, -EINVAL, "--touch: sendfile sends pages of the file by reference, so bytes "
				    "in flight would change; leave --touch out");
	if (flow->shape.pages != PAGES_4K)
		return failure__set(&flow->failure, -EINVAL, "--pages %s: sendfile sends pages of a file; use "
				    "--pages 4k", page_kind_names[flow->shape.pages]);
	/* Two more slots, because a message may begin and end inside a page. */
	return flow->via == VIA_SPLICE ? splice__open(flow, flow->shape.size_bytes / sysconf(_SC_PAGESIZE) + 2) : 0;
}

static void sendfile_close(struct flow *flow)
{
	if (flow->via == VIA_SPLICE)
		splice__close(flow);
}

static int sendfile_send(struct flow *flow, struct message *message)
{
	return flow->via == VIA_SPLICE ? splice__send_file(flow, message->file_offset)
				       : flow__sendfile(flow, message->file_offset);
}

const struct strategy strategy_sendfile = {
	.name = "sendfile",
	.claim = { 0, 0, "one sendfile() of a message in a file" },
	.in_file = true,
	.open = sendfile_open,
	.close = sendfile_close,
	.send = sendfile_send,
};
