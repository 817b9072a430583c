// SPDX-License-Identifier: GPL-2.0-only
#include <stddef.h>
#include <string.h>

#include "check.h"
#include "strategy.h"

TEST("registry: every strategy is whole and unique")
{
	unsigned int count = 0;

	for (const struct strategy *const *item = strategies; *item; item++, count++) {
		CHECK((*item)->name && (*item)->send && (*item)->claim.what);
		CHECK(strategy__find((*item)->name) == *item);
		CHECK(!item[1] || strcmp((*item)->name, item[1]->name) < 0);
		for (const char *const *alias = (*item)->aliases; alias && *alias; alias++)
			CHECK(strategy__find(*alias) == *item);
	}
	CHECK(count >= 5);
}

TEST("registry: names and slips")
{
	static const struct { const char *typed, *meant; } slips[] = {
		{ "zerocpy", "zero_copy" }, { "one-copy", "one_copy" }, { "perfeild", "per_field" },
		{ "zcopy", "zero_copy" },
		{ "nul", "null" }, { "two_coppy", "two_copy" },
	};

	for (size_t i = 0; i < sizeof(slips) / sizeof(*slips); i++) {
		const char *found = strategy__suggest(slips[i].typed);

		CHECK(found && !strcmp(found, slips[i].meant));
	}
	CHECK(!strategy__suggest("sendfile_from_disk"));
	CHECK(!strategy__suggest("ls"));
	CHECK(!strategy__find("zero copy"));
	CHECK(strategy__find("a3") == strategy__find("zero_copy"));
}
