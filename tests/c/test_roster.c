/* The processes of a watched program: many, each once, and those that do not fit are counted. */
#include <stdlib.h>

#include "../../src/collector/sampling/roster.h"
#include "check.h"

static void test_each_once(void)
{
	struct roster roster = {};

	for (pid_t pid = 1; pid <= 3000; pid++)
		CHECK(roster__add(&roster, pid));
	for (pid_t pid = 3000; pid >= 1; pid--)
		CHECK(!roster__add(&roster, pid));
	CHECK_EQUAL(roster.count, 3000);
	for (int i = 0; i < 3000; i++)
		CHECK_EQUAL(roster.pids[i], i + 1);
	CHECK_EQUAL(roster.lost, 0);
	roster__free(&roster);
	CHECK_EQUAL(roster.count, 0);
}

static void test_those_that_do_not_fit(void)
{
	struct roster roster = {};

	for (pid_t pid = 1; pid <= 16384; pid++)
		CHECK(roster__add(&roster, pid));
	for (int i = 0; i < 7; i++)
		CHECK(!roster__add(&roster, 20000 + i));
	CHECK_EQUAL(roster.count, 16384);
	CHECK_EQUAL(roster.lost, 7);
	roster__free(&roster);
}

const struct test roster_tests[] = {
	{ "roster: each once", test_each_once },
	{ "roster: those that do not fit are counted", test_those_that_do_not_fit },
	{ NULL, NULL },
};
