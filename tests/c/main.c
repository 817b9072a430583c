#include <stddef.h>

#include "check.h"

bool check_failed;

static const struct test *const files[] = {
	/* These have threads, and are all that the thread sanitizer sees: it takes ten times as long. */
	flow_tests, gate_tests, bursts_tests, events_tests,
#ifndef __SANITIZE_THREAD__
	histogram_tests, zerocopy_tests, quantity_tests, message_tests, pattern_tests, slices_tests, registry_tests,
	call_decode_tests, counter_trial_tests, prototype_tests, ksyms_tests, call_stack_tests, maps_tests,
	lines_tests, target_pids_tests, timer_rate_tests, cache_tests, call_shadow_tests, simulator_tests,
	simulator_report_tests, timers_tests, vcpu_tests, uring_tests, tls_tests,
#endif
};

int main(void)
{
	unsigned int passed = 0, failed = 0;

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		for (const struct test *test = files[i]; test->name; test++) {
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
