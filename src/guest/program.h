/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GUEST_PROGRAM_H
#define GUEST_PROGRAM_H

#include <sys/types.h>

#define PROGRAM_WORDS_MAX 96

/* A program in the guest; what one of ours prints is one line of JSON, at its end. */
struct program {
	const char *name;
	pid_t pid;
	int from;
};

#define PROGRAM_BLANK '\x1f'	/* a blank within a word */

/* `words` are separated by blanks. */
void program__start(struct program *program, const char *name, char *words, int namespace_fd);
/* Waits for its end and hands on what it said, as `NAME JSON`. */
void program__finish(struct program *program);
/* A program of the user's: prints on the console. */
pid_t program__begin(const char *name, char *words, int namespace_fd);
/* The same, and waits for its last process; beside a server for itself, and then a moment for the server's end. */
void program__run(const char *name, char *words, int namespace_fd, pid_t server);

#endif
