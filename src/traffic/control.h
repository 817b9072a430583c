/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_CONTROL_H
#define TRAFFIC_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Connection to the controlling program, which writes commands as lines to our stdin and reads JSON lines from our stdout.
 * If stdin ends, the controlling program is dead and nobody reads the report, so this program exits at once.
 * The connection also receives SIGINT and SIGTERM. Call control__open() before the first thread is created: threads
 * inherit the blocked signals, so that no thread is interrupted.
 */
struct control {
	bool enabled;		/* false (without --control): handle signals only; stdout gets only the report */
	bool listening;		/* stdin has not ended */
	bool stopping;		/* `stop` was received: the end of stdin is ignored from then on */
	int signal_fd;
	size_t length;		/* bytes in `input` */
	char input[512];	/* received bytes that are not a whole line yet */
};

enum wake { WOKE_COMMAND = 1, WOKE_SIGNAL = 2, WOKE_EVENT = 4, WOKE_DEADLINE = 8 };

struct command {
	const char *name;
	void (*run)(void *role, const char *argument);
};

int control__open(struct control *control, bool enabled);
void control__close(struct control *control);

/*
 * Wait for a command, SIGINT or SIGTERM, `event_fd` to become readable, or the deadline (0: none).
 * Return what happened as a set of enum wake.
 */
unsigned int control__wait(struct control *control, int event_fd, uint64_t deadline_ns);
/* Run the commands that have arrived. `role` is passed to the function of each command. */
void control__dispatch(struct control *control, const struct command *commands, size_t count,
		       void *role);

/* Print an object as one JSON line and release it. If stdout is closed, exit with status 1. */
void control__emit(json_t *object);
/* Return a new object {"event": name}. The caller adds keys and emits it. */
json_t *control__event(const char *name);
/* Report a failure or an invalid command: an `error` event with --control, else a line on stderr. */
__attribute__((format(printf, 2, 3)))
void control__error(struct control *control, const char *format, ...);

#endif
