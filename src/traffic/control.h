/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_CONTROL_H
#define TRAFFIC_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The master's end of a run: commands as lines on stdin, answers as JSON lines on stdout. When stdin
 * ends the master is dead and nobody will read a report: the program ends at once. Signals arrive
 * here too; control__open() must come before the first thread, so that none of them is interrupted.
 */
struct control {
	bool enabled;		/* false: signals only, and stdout gets the report alone */
	bool listening;		/* to stdin, until it ends */
	bool stopping;		/* `stop` was the last word: the end of stdin means nothing any more */
	int signal_fd;
	size_t length;
	char input[512];
};

enum wake { WOKE_COMMAND = 1, WOKE_SIGNAL = 2, WOKE_EVENT = 4, WOKE_DEADLINE = 8 };

struct command {
	const char *name;
	void (*run)(void *role, const char *argument);
};

int control__open(struct control *control, bool enabled);
void control__close(struct control *control);

/* Wait for the first of: a command, SIGINT or SIGTERM, `event_fd` readable, the deadline (0: none). */
unsigned int control__wait(struct control *control, int event_fd, uint64_t deadline_ns);
/* Run the commands that have arrived. */
void control__dispatch(struct control *control, const struct command *commands, size_t count,
		       void *role);

/* One JSON line; takes the object. With nobody to read it the program ends. */
void control__emit(json_t *object);
/* {"event": name}, to be filled. */
json_t *control__event(const char *name);
/* A command that makes no sense now, or something that failed. */
__attribute__((format(printf, 2, 3)))
void control__error(struct control *control, const char *format, ...);

#endif
