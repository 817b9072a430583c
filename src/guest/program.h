/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GUEST_PROGRAM_H
#define GUEST_PROGRAM_H

#include <sys/types.h>

#define PROGRAM_WORDS_MAX 96

/* A program in the guest. Our own programs print one line of JSON when they end. */
struct program {
	const char *name;
	pid_t pid;
	int from;
};

#define PROGRAM_BLANK '\x1f'	/* stands for a blank inside a word */

/* Start a program; `words` are separated by blanks. */
void program__start(struct program *program, const char *name, char *words, int namespace_fd);
/* Wait for the program and pass on its output, as `NAME JSON`. */
void program__finish(struct program *program);
/* Start a program of the user, which prints on the console. */
pid_t program__begin(const char *name, char *words, int namespace_fd);
/*
 * As program__begin(), and wait for the program and all its children. With a server, wait only for the program
 * itself, and then briefly for the server.
 */
void program__run(const char *name, char *words, int namespace_fd, pid_t server);

#endif
