/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_OPTION_TABLE_H
#define TRAFFIC_OPTION_TABLE_H

#include <argp.h>

#include "options.h"

enum option_key {
	OPT_HELP = 'h',
	OPT_IMPL = 256, OPT_SIZE, OPT_FIELDS, OPT_THREADS, OPT_ADDRESS, OPT_PORT, OPT_DURATION,
	OPT_MESSAGES, OPT_HEADER, OPT_ALIGN, OPT_PAGES, OPT_FILE, OPT_WORKING_SET, OPT_TOUCH, OPT_VERIFY, OPT_MODE,
	OPT_NODELAY, OPT_CONGESTION, OPT_SNDBUF, OPT_RCVBUF, OPT_CPUS, OPT_TIME_EVERY, OPT_SEED,
	OPT_SENDING, OPT_READING, OPT_TOUCH_RECEIVED, OPT_COALESCE, OPT_BUFFER, OPT_CONTROL, OPT_CHECK,
	OPT_SIMULATED, OPT_ANSWERED, OPT_ANSWER, OPT_ISSUE, OPT_REGISTERED, OPT_PUSH,
	OPT_CALL, OPT_VIA, OPT_WAIT, OPT_BATCH, OPT_TLS,
};

#define OPTION_ROWS_MAX 64

/* The rows of one subcommand, with a closing empty one. */
void option_table__select(enum role role, struct argp_option rows[OPTION_ROWS_MAX]);
const char *option_table__doc(enum role role);
/* Is every --name a name (or an unambiguous beginning of one)? 0 or -EINVAL. */
int option_table__check_names(const struct argp_option *rows, int argc, char **argv,
			      struct failure *failure);

#endif
