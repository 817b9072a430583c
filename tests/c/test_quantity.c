// SPDX-License-Identifier: GPL-2.0-only
#include <stddef.h>
#include <string.h>

#include "check.h"
#include "quantity.h"

static bool size_is(const char *text, uint64_t expected)
{
	struct failure failure = { "" };
	uint64_t bytes = 0;

	return !quantity__size("size", text, 1, 1ull << 30, &bytes, &failure) && bytes == expected &&
	       !failure__happened(&failure);
}

static bool size_is_refused(const char *text, const char *reason)
{
	struct failure failure = { "" };
	uint64_t bytes;

	return quantity__size("size", text, 1, 1ull << 30, &bytes, &failure) < 0 &&
	       strstr(failure.text, reason) && !strchr(failure.text, '\n');
}

TEST("quantity: sizes are read")
{
	CHECK(size_is("1", 1));
	CHECK(size_is("1500", 1500));
	CHECK(size_is("64K", 65536));
	CHECK(size_is("64k", 65536));
	CHECK(size_is("64KiB", 65536));
	CHECK(size_is("64KB", 65536));
	CHECK(size_is("64kb", 65536));
	CHECK(size_is("512B", 512));
	CHECK(size_is("2M", 2 << 20));
	CHECK(size_is("10m", 10 << 20));
	CHECK(size_is("0.5M", 512 << 10));
	CHECK(size_is("1.5MiB", 1536 << 10));
	CHECK(size_is("0.001953125M", 2048));
	CHECK(size_is("1G", 1 << 30));
}

TEST("quantity: wrong sizes are refused")
{
	CHECK(size_is_refused("0", "out of range"));
	CHECK(size_is_refused("2G", "out of range"));
	CHECK(size_is_refused("18446744073709551615", "out of range"));
	CHECK(size_is_refused("99999999999999999999999", "out of range"));
	CHECK(size_is_refused("99999999999999999G", "out of range"));
	CHECK(size_is_refused("64KX", "unknown suffix"));
	CHECK(size_is_refused("1.5", "not a whole number of bytes"));
	CHECK(size_is_refused("0.3K", "not a whole number of bytes"));
	CHECK(size_is_refused("1.M", "unknown suffix"));
	CHECK(size_is_refused("1..5M", "unknown suffix"));
	CHECK(size_is_refused("0.0K", "out of range"));
	CHECK(size_is_refused("1.0000000000001K", "unknown suffix"));
	CHECK(size_is_refused("", "not a size"));
	CHECK(size_is_refused("K", "not a size"));
	CHECK(size_is_refused("-1", "not a size"));
	CHECK(size_is_refused(" 1", "not a size"));
}

TEST("quantity: counts and seconds")
{
	struct failure failure = { "" };
	double seconds;
	uint64_t count;

	CHECK_EQUAL(quantity__count("threads", "1024", 1, 1024, &count, &failure), 0);
	CHECK_EQUAL(count, 1024);
	CHECK(quantity__count("threads", "0", 1, 1024, &count, &failure) < 0);
	CHECK(quantity__count("threads", "10000", 1, 1024, &count, &failure) < 0);
	CHECK(quantity__count("threads", "2x", 1, 1024, &count, &failure) < 0);
	CHECK(quantity__count("threads", "+2", 1, 1024, &count, &failure) < 0);
	CHECK_EQUAL(quantity__seconds("duration", "0.5", 60, &seconds, &failure), 0);
	CHECK(seconds == 0.5);
	CHECK(quantity__seconds("duration", "0", 60, &seconds, &failure) < 0);
	CHECK(quantity__seconds("duration", "-1", 60, &seconds, &failure) < 0);
	CHECK(quantity__seconds("duration", "nan", 60, &seconds, &failure) < 0);
	CHECK(quantity__seconds("duration", "inf", 60, &seconds, &failure) < 0);
	CHECK(quantity__seconds("duration", "1s", 60, &seconds, &failure) < 0);
	CHECK(quantity__seconds("duration", "", 60, &seconds, &failure) < 0);
}

/* More names than fit the message are truncated, and the memory behind the message is unchanged. */
TEST("quantity: many choices are cut")
{
	static const char *const names[] = {
		"first-of-the-names-of-forty-characters-a", "other-of-the-names-of-forty-characters-b",
		"other-of-the-names-of-forty-characters-c", "other-of-the-names-of-forty-characters-d",
		"other-of-the-names-of-forty-characters-e", "other-of-the-names-of-forty-characters-f",
		"other-of-the-names-of-forty-characters-g", "last",
	};
	struct failure failure = { "" };
	unsigned int index = 0;

	CHECK(quantity__choice("mode", "none", names, 8, &index, &failure) < 0);
	CHECK(strstr(failure.text, "--mode none: unknown; choose first-of-the-names"));
	CHECK(!strstr(failure.text, "last"));
	CHECK_EQUAL(quantity__choice("mode", "last", names, 8, &index, &failure), 0);
	CHECK_EQUAL(index, 7);
}

TEST("failure: the first cause is kept")
{
	struct failure failure = { "" };

	CHECK_EQUAL(failure__set(&failure, -5, "first: %d", 1), (uint64_t)-5);
	CHECK_EQUAL(failure__set(&failure, -6, "second"), (uint64_t)-6);
	CHECK(!strcmp(failure.text, "first: 1"));
}
