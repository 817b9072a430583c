/* The processes of a watched program: many, each once, and those that do not fit are counted. */
#include "../../src/collector/sampling/target_pids.h"
#include "check.h"

TEST("target pids: each once")
{
	struct target_pids targets = {};

	for (pid_t pid = 1; pid <= 3000; pid++)
		CHECK(target_pids__add(&targets, pid));
	for (pid_t pid = 3000; pid >= 1; pid--)
		CHECK(!target_pids__add(&targets, pid));
	CHECK_EQUAL(targets.count, 3000);
	for (int i = 0; i < 3000; i++)
		CHECK_EQUAL(targets.pids[i], i + 1);
	CHECK_EQUAL(targets.lost, 0);
}

TEST("target pids: those that do not fit are counted")
{
	struct target_pids targets = {};

	for (pid_t pid = 1; pid <= 16384; pid++)
		CHECK(target_pids__add(&targets, pid));
	for (int i = 0; i < 7; i++)
		CHECK(!target_pids__add(&targets, 20000 + i));
	CHECK_EQUAL(targets.count, 16384);
	CHECK_EQUAL(targets.lost, 7);
}
