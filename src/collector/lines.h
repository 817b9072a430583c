/* SPDX-License-Identifier: GPL-2.0 */
/* lines.h - commands as they come in: of bounded length, and text. */
#ifndef COLLECTOR_LINES_H
#define COLLECTOR_LINES_H

#include <stdbool.h>
#include <stdio.h>

/* With its end; the longest that copyscope sends has a tenth of that. */
#define LINE_MAX_BYTES 4096

enum line {
	LINE_READ,
	LINE_END,
	/* The whole of it was taken, so that the next one is a line again. */
	LINE_TOO_LONG,
	LINE_NO_TEXT,
};

/* The next line, without its end. Printable ASCII only: a refusal repeats it. */
enum line lines__next(FILE *stream, char line[LINE_MAX_BYTES]);
/* The whole text is a decimal number from 1 to max. */
bool lines__number(const char *text, unsigned long max, unsigned long *number);

#endif
