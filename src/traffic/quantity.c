// SPDX-License-Identifier: GPL-2.0
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "quantity.h"

static const struct {
	const char *name;
	unsigned int shift;
} suffixes[] = {
	{ "", 0 }, { "B", 0 }, { "K", 10 }, { "KB", 10 }, { "KiB", 10 }, { "M", 20 }, { "MB", 20 }, { "MiB", 20 },
	{ "G", 30 }, { "GB", 30 }, { "GiB", 30 },
};
/* 10^9 of a part, times 2^30, fits 64 bits. */
#define FRACTION_DIGITS_MAX 9

/* Digits only: strtoull() would take signs and spaces. */
static int parse_digits(const char *text, uint64_t *value, const char **end)
{
	char *after;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	*value = strtoull(text, &after, 10);
	*end = after;
	return errno ? -ERANGE : 0;
}

static int check_range(const char *option, const char *text, uint64_t value, uint64_t min,
		       uint64_t max, struct failure *failure)
{
	if (value >= min && value <= max)
		return 0;
	return failure__set(failure, -EINVAL, "%s: %s: out of range: use %llu to %llu", option, text,
			    (unsigned long long)min, (unsigned long long)max);
}

/* `.5` as 5 of 10; a point without digits, or with more of them than a size needs, stays in the suffix. */
static uint64_t parse_fraction(const char **text, uint64_t *whole)
{
	const char *digit = *text + 1;
	uint64_t part = 0;

	*whole = 1;
	if (**text != '.')
		return 0;
	for (; isdigit((unsigned char)*digit) && digit - *text <= FRACTION_DIGITS_MAX; digit++) {
		part = part * 10 + (*digit - '0');
		*whole *= 10;
	}
	if (*whole > 1 && !isdigit((unsigned char)*digit))
		*text = digit;
	else
		part = 0;
	return part;
}

int quantity__size(const char *option, const char *text, uint64_t min, uint64_t max,
		   uint64_t *bytes, struct failure *failure)
{
	const char *suffix = text;
	uint64_t value, part, whole;
	int err = parse_digits(text, &value, &suffix);

	if (err == -EINVAL)
		return failure__set(failure, -EINVAL, "%s: '%s': not a size: write 1500, 64K or 2M",
				    option, text);
	part = parse_fraction(&suffix, &whole);
	for (size_t i = 0; !err && i < sizeof(suffixes) / sizeof(*suffixes); i++) {
		if (strcasecmp(suffix, suffixes[i].name))
			continue;
		if (value > UINT64_MAX >> suffixes[i].shift)
			return check_range(option, text, UINT64_MAX, min, max, failure);
		if ((part << suffixes[i].shift) % whole)
			return failure__set(failure, -EINVAL, "%s: '%s': not a whole number of bytes: write 1500, 64K "
					    "or 0.5M", option, text);
		*bytes = (value << suffixes[i].shift) + (part << suffixes[i].shift) / whole;
		return check_range(option, text, *bytes, min, max, failure);
	}
	if (err || strlen(suffix) == 0)
		return check_range(option, text, UINT64_MAX, min, max, failure);
	return failure__set(failure, -EINVAL, "%s: '%s': unknown suffix '%s': use K, M or G (powers of "
			    "1024)", option, text, suffix);
}

int quantity__count(const char *option, const char *text, uint64_t min, uint64_t max,
		    uint64_t *count, struct failure *failure)
{
	const char *end = text;
	int err = parse_digits(text, count, &end);

	if (err == -EINVAL || *end)
		return failure__set(failure, -EINVAL, "%s: '%s': not a whole number: use %llu to %llu",
				    option, text, (unsigned long long)min, (unsigned long long)max);
	return check_range(option, text, err ? UINT64_MAX : *count, min, max, failure);
}

int quantity__seconds(const char *option, const char *text, double max, double *seconds,
		      struct failure *failure)
{
	char *end;

	*seconds = strtod(text, &end);
	if (end == text || *end || !isfinite(*seconds) || *seconds <= 0 || *seconds > max)
		return failure__set(failure, -EINVAL, "%s: '%s': not a time: use seconds, above 0 and up "
				    "to %.0f", option, text, max);
	return 0;
}

int quantity__switch(const char *option, const char *text, bool *on, struct failure *failure)
{
	static const char *const names[] = { "off", "on" };
	unsigned int index = 0;
	int err = quantity__choice(option, text, names, 2, &index, failure);

	if (!err)
		*on = index;
	return err;
}

int quantity__choice(const char *option, const char *text, const char *const *names,
		     unsigned int count, unsigned int *index, struct failure *failure)
{
	char all[128] = "";
	size_t length = 0;

	for (unsigned int i = 0; i < count; i++) {
		if (!strcmp(text, names[i])) {
			*index = i;
			return 0;
		}
		/* What does not fit is cut: snprintf() returns what it would have written. */
		if (length < sizeof(all))
			length += snprintf(all + length, sizeof(all) - length, "%s%s", i ? ", " : "", names[i]);
	}
	return failure__set(failure, -EINVAL, "%s: '%s': unknown: use one of: %s", option, text, all);
}
