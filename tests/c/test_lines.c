// SPDX-License-Identifier: GPL-2.0-only
/* Tests of reading command lines (lines.h): long lines, missing lines, binary data. */
#include <stdio.h>
#include <string.h>

#include "../../src/collector/lines.h"
#include "check.h"

static char line[LINE_MAX_BYTES];

TEST("lines: one after the other")
{
	char text[] = "symbols\n\nopen bytes";
	FILE *stream = fmemopen(text, strlen(text), "r");

	CHECK(lines__next(stream, line) == LINE_READ && !strcmp(line, "symbols"));
	CHECK(lines__next(stream, line) == LINE_READ && !strcmp(line, ""));
	CHECK(lines__next(stream, line) == LINE_READ && !strcmp(line, "open bytes"));
	CHECK(lines__next(stream, line) == LINE_END);
	fclose(stream);
}

/* The longest line that fits, one byte more, and much more: each counts as one line. */
TEST("lines: too long")
{
	static char text[4 * LINE_MAX_BYTES];
	size_t lengths[] = { LINE_MAX_BYTES - 2, LINE_MAX_BYTES - 1, 2 * LINE_MAX_BYTES };

	for (int i = 0; i < 3; i++) {
		FILE *stream;

		memset(text, 'x', lengths[i]);
		strcpy(text + lengths[i], "\nnext\n");
		stream = fmemopen(text, strlen(text), "r");
		CHECK(lines__next(stream, line) == (i ? LINE_TOO_LONG : LINE_READ));
		CHECK(i || strlen(line) == lengths[0]);
		CHECK(lines__next(stream, line) == LINE_READ && !strcmp(line, "next"));
		fclose(stream);
	}
}

TEST("lines: no text")
{
	char text[] = "open\0bytes\n\x1b[31m\ncaf\xe9\nclose\n";
	FILE *stream = fmemopen(text, sizeof(text) - 1, "r");

	for (int i = 0; i < 3; i++)
		CHECK(lines__next(stream, line) == LINE_NO_TEXT);
	CHECK(lines__next(stream, line) == LINE_READ && !strcmp(line, "close"));
	fclose(stream);
}

TEST("lines: numbers")
{
	unsigned long number = 0;

	CHECK(lines__number("1", 10, &number) && number == 1);
	CHECK(lines__number("10", 10, &number) && number == 10);
	CHECK(!lines__number("11", 10, &number));
	CHECK(!lines__number("0", 10, &number));
	CHECK(!lines__number("-1", 10, &number));
	CHECK(!lines__number(" 1", 10, &number));
	CHECK(!lines__number("1 ", 10, &number));
	CHECK(!lines__number("", 10, &number));
	CHECK(!lines__number("99999999999999999999999", ~0UL, &number));
}
