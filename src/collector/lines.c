// SPDX-License-Identifier: GPL-2.0-only
#include "lines.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

enum line lines__next(FILE *stream, char line[LINE_MAX_BYTES])
{
	enum line result = LINE_READ;
	size_t length = 0;
	int c;

	while ((c = getc(stream)) != EOF && c != '\n') {
		if (c < ' ' || c > '~')
			result = LINE_NO_TEXT;
		if (length + 1 < LINE_MAX_BYTES)
			line[length] = c;
		length++;
	}
	if (c == EOF && !length)
		return LINE_END;
	if (length + 1 >= LINE_MAX_BYTES)
		return LINE_TOO_LONG;
	line[length] = '\0';
	return result;
}

bool lines__number(const char *text, unsigned long max, unsigned long *number)
{
	char *end;

	/* strtoul() accepts blanks and signs. */
	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*number = strtoul(text, &end, 10);
	return !errno && !*end && *number >= 1 && *number <= max;
}
