// SPDX-License-Identifier: GPL-2.0-only
#include <stddef.h>

#include "reading.h"

/* readings.inc is generated from the file names: one READING(name) or ABSENT(name) per line, sorted. */
#define READING(name) extern const struct reading reading_##name;
#define ABSENT(file) static const struct reading reading_##file = { .name = #file };
#include "readings.inc"
#undef READING
#undef ABSENT

#define READING(name) &reading_##name,
#define ABSENT(name) &reading_##name,
const struct reading *const readings[] = {
#include "readings.inc"
	NULL
};

_Static_assert(sizeof(readings) / sizeof(*readings) <= READINGS_MAX, "READINGS_MAX is too small");

unsigned int reading__names(const char *names[READINGS_MAX])
{
	unsigned int count = 0;

	for (; readings[count]; count++)
		names[count] = readings[count]->name;
	return count;
}
