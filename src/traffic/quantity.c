// SPDX-License-Identifier: GPL-2.0-only
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
/* With nine digits the numerator times 2^30 still fits 64 bits. */
#define FRACTION_DIGITS_MAX 9

/* Parse a number of digits only: strtoull() would also accept signs and spaces. */
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
	return failure__set(failure, -EINVAL, "--%s %s: out of range; choose %llu to %llu", option, text,
			    (unsigned long long)min, (unsigned long long)max);
}

/*
 * Parse a fraction: for `.5` return the numerator 5 and set the denominator to 10. A point with no digits or too many digits
 * is left in the text, so that the point is refused as a suffix.
 */
static uint64_t parse_fraction(const char **text, uint64_t *denominator)
{
	const char *digit = *text + 1;
	uint64_t numerator = 0;

	*denominator = 1;
	if (**text != '.')
		return 0;
	for (; isdigit((unsigned char)*digit) && digit - *text <= FRACTION_DIGITS_MAX; digit++) {
		numerator = numerator * 10 + (*digit - '0');
		*denominator *= 10;
	}
	if (*denominator > 1 && !isdigit((unsigned char)*digit))
		*text = digit;
	else
		numerator = 0;
	return numerator;
}

int quantity__size(const char *option, const char *text, uint64_t min, uint64_t max,
		   uint64_t *bytes, struct failure *failure)
{
	const char *suffix = text;
	uint64_t value, numerator, denominator;
	int err = parse_digits(text, &value, &suffix);

	if (err == -EINVAL)
		return failure__set(failure, -EINVAL, "--%s %s: not a size; write 1500, 64K or 2M",
				    option, text);
	numerator = parse_fraction(&suffix, &denominator);
	for (size_t i = 0; !err && i < sizeof(suffixes) / sizeof(*suffixes); i++) {
		if (strcasecmp(suffix, suffixes[i].name))
			continue;
		if (value > UINT64_MAX >> suffixes[i].shift)
			return check_range(option, text, UINT64_MAX, min, max, failure);
		if ((numerator << suffixes[i].shift) % denominator)
			return failure__set(failure, -EINVAL, "--%s %s: not a whole number of bytes; write 1500, 64K "
					    "or 0.5M", option, text);
		*bytes = (value << suffixes[i].shift) + (numerator << suffixes[i].shift) / denominator;
		return check_range(option, text, *bytes, min, max, failure);
	}
	if (err || strlen(suffix) == 0)
		return check_range(option, text, UINT64_MAX, min, max, failure);
	return failure__set(failure, -EINVAL, "--%s %s: unknown suffix '%s'; use K, M or G (powers of "
			    "1024)", option, text, suffix);
}

int quantity__count(const char *option, const char *text, uint64_t min, uint64_t max,
		    uint64_t *count, struct failure *failure)
{
	const char *end = text;
	int err = parse_digits(text, count, &end);

	if (err == -EINVAL || *end)
		return failure__set(failure, -EINVAL, "--%s %s: not a whole number; choose %llu to %llu",
				    option, text, (unsigned long long)min, (unsigned long long)max);
	return check_range(option, text, err ? UINT64_MAX : *count, min, max, failure);
}

int quantity__seconds(const char *option, const char *text, double max, double *seconds,
		      struct failure *failure)
{
	char *end;

	*seconds = strtod(text, &end);
	if (end == text || *end || !isfinite(*seconds) || *seconds <= 0 || *seconds > max)
		return failure__set(failure, -EINVAL, "--%s %s: not a time; use seconds, above 0 and up "
				    "to %.0f", option, text, max);
	return 0;
}

int quantity__choice(const char *option, const char *text, const char *const *names,
		     unsigned int count, unsigned int *index, struct failure *failure)
{
	char joined[128] = "";
	size_t length = 0;

	for (unsigned int i = 0; i < count; i++) {
		if (!strcmp(text, names[i])) {
			*index = i;
			return 0;
		}
		/* A long list is truncated: snprintf() then returns the length of the whole text. */
		if (length < sizeof(joined))
			length += snprintf(joined + length, sizeof(joined) - length, "%s%s", i ? ", " : "", names[i]);
	}
	return failure__set(failure, -EINVAL, "--%s %s: unknown; choose %s", option, text, joined);
}
