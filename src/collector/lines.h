/* SPDX-License-Identifier: GPL-2.0-only */
/* lines.h - reads commands from a stream as lines of text of bounded length. */
#ifndef COLLECTOR_LINES_H
#define COLLECTOR_LINES_H

#include <stdbool.h>
#include <stdio.h>

/*
 * Maximum length of a line, including the terminator. The longest line that copyscope sends has a tenth of this length.
 */
#define LINE_MAX_BYTES 4096

enum line {
	LINE_READ,
	LINE_END,
	/* The rest of the line was consumed, so that the next read starts at a new line. */
	LINE_TOO_LONG,
	LINE_NO_TEXT,
};

/*
 * Read the next line, without its newline. Only printable ASCII is accepted, because error messages repeat the line.
 */
enum line lines__next(FILE *stream, char line[LINE_MAX_BYTES]);
/* Return true if the whole text is a decimal number from 1 to max. */
bool lines__number(const char *text, unsigned long max, unsigned long *number);

#endif
