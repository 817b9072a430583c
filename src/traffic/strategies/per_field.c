// SPDX-License-Identifier: GPL-2.0
#include "strategy.h"

static int per_field_send(struct flow *flow, struct message *message)
{
	for (unsigned int i = 0; i < flow->shape.fields; i++) {
		int err = flow__send(flow, message->fields[i].iov_base, message->fields[i].iov_len);

		if (err)
			return err;
	}
	return 0;
}

const struct strategy strategy_per_field = {
	.name = "per_field",
	.aliases = (const char *const[]){ "perfield", NULL },
	.claim = { 0, 1, "one send() per field" },
	.send = per_field_send,
};
