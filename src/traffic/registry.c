// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <string.h>

#include "strategy.h"

/* strategies.inc is generated from the file names: one STRATEGY(name) or ABSENT(name) per line, sorted. */
#define ABSENT(name)
#define STRATEGY(name) extern const struct strategy strategy_##name;
#include "strategies.inc"
#undef STRATEGY

const struct strategy *const strategies[] = {
#define STRATEGY(name) &strategy_##name,
#include "strategies.inc"
#undef STRATEGY
	NULL
};
#undef ABSENT

const char *const strategy_names[] = {
#define STRATEGY(name) #name,
#define ABSENT(name) #name,
#include "strategies.inc"
#undef ABSENT
#undef STRATEGY
	NULL
};

bool strategy__is_absent(const char *name)
{
	for (const char *const *listed = strategy_names; *listed; listed++)
		if (!strcmp(*listed, name))
			return !strategy__find(name);
	return false;
}

#define NAME_BYTES_MAX 31
/* Maximum number of wrong letters in a name that is treated as a misspelling. */
#define SUGGEST_DISTANCE_MAX 3

const struct strategy *strategy__find(const char *name)
{
	for (const struct strategy *const *strategy = strategies; *strategy; strategy++) {
		if (!strcmp((*strategy)->name, name))
			return *strategy;
		for (const char *const *alias = (*strategy)->aliases; alias && *alias; alias++)
			if (!strcmp(*alias, name))
				return *strategy;
	}
	return NULL;
}

/* Return the Levenshtein distance of two names. */
static unsigned int distance(const char *a, const char *b)
{
	unsigned int row[NAME_BYTES_MAX + 1];
	size_t width = strlen(b);

	if (strlen(a) > NAME_BYTES_MAX || width > NAME_BYTES_MAX)
		return SUGGEST_DISTANCE_MAX + 1;
	for (size_t j = 0; j <= width; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		unsigned int diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= width; j++) {
			unsigned int best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[width];
}

const char *strategy__suggest(const char *name)
{
	unsigned int best = 2 * (SUGGEST_DISTANCE_MAX + 1);
	const char *nearest = NULL;

	for (const struct strategy *const *strategy = strategies; *strategy; strategy++) {
		const char *const *alias = (*strategy)->aliases;
		const char *candidate = (*strategy)->name;

		while (candidate) {
			unsigned int wrong_letters = distance(name, candidate);
			/* At equal distance, prefer the same first letter: zcopy means zerocopy, not onecopy. */
			unsigned int rank = 2 * wrong_letters + (*name != *candidate);

			/* At least one letter must agree: otherwise any short name would match a1 or a2. */
			if (rank < best && wrong_letters < strlen(candidate) && wrong_letters < strlen(name)) {
				best = rank;
				nearest = (*strategy)->name;
			}
			candidate = alias && *alias ? *alias++ : NULL;
		}
	}
	return nearest;
}

void strategy__list_names(char *text, size_t size)
{
	size_t length = 0;

	text[0] = '\0';
	for (const struct strategy *const *strategy = strategies; *strategy && length < size; strategy++)
		length += snprintf(text + length, size - length, "%s%s", length ? ", " : "",
				   (*strategy)->name);
}
