// SPDX-License-Identifier: GPL-2.0-only
#include "message.h"

#include <errno.h>
#include <string.h>

int print_json_line(json_t *message)
{
	int err = message ? json_dumpf(message, stdout, JSON_COMPACT) : -1;

	json_decref(message);
	if (err || putchar('\n') == EOF || fflush(stdout)) {
		complain("stdout", "%s", strerror(errno ? errno : ENOMEM));
		return -EIO;
	}
	return 0;
}
