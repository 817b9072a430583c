// SPDX-License-Identifier: GPL-2.0-only
#include "check.h"

bool check_failed;
static struct test *first, **last = &first;

void test__add(struct test *test)
{
	*last = test;
	last = &test->next;
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
	const bool all = false;
#else
	const bool all = true;
#endif
	unsigned int passed = 0, failed = 0;

	for (const struct test *test = first; test; test = test->next) {
		if (!all && !test->threads)
			continue;
		check_failed = false;
		test->run();
		if (!check_failed) {
			passed++;
			continue;
		}
		failed++;
		printf("FAIL %s\n", test->name);
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed != 0;
}
