// SPDX-License-Identifier: GPL-2.0-only
#include "strategy.h"

const struct strategy strategy_one_copy = {
	.name = "one_copy",
	.aliases = (const char *const[]){ "onecopy", "a2", NULL },
	.claim = { 0, 1, "one sendmsg() over a prebuilt iovec; send() if there is only one field" },
	.vectored = true,
	.send = flow__sendmsg,
};
