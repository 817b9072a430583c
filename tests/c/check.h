#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A test is a function that checks; the first failing check ends it. */
struct test {
	const char *name;
	void (*run)(void);
};

extern bool check_failed;

#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			printf("  %s:%d: not so: %s\n", __FILE__, __LINE__, #condition);   \
			check_failed = true;                                               \
			return;                                                            \
		}                                                                          \
	} while (0)

#define CHECK_EQUAL(left, right)                                                           \
	do {                                                                               \
		uint64_t left_ = (uint64_t)(left), right_ = (uint64_t)(right);             \
		if (left_ != right_) {                                                     \
			printf("  %s:%d: %s = %llu, %s = %llu\n", __FILE__, __LINE__, #left, \
			       (unsigned long long)left_, #right, (unsigned long long)right_); \
			check_failed = true;                                               \
			return;                                                            \
		}                                                                          \
	} while (0)

/* The same sequence in every run: a failure can be repeated. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Each NULL-terminated list is a file of tests. */
extern const struct test histogram_tests[], zerocopy_tests[], quantity_tests[], message_tests[],
	pattern_tests[], flow_tests[], slices_tests[], registry_tests[], gate_tests[],
	call_decode_tests[], counter_trial_tests[], prototype_tests[], ksyms_tests[], call_stack_tests[], maps_tests[],
	lines_tests[], bursts_tests[], events_tests[], target_pids_tests[], timer_rate_tests[], cache_tests[], call_shadow_tests[], simulator_tests[], simulator_report_tests[], timers_tests[], vcpu_tests[],
	uring_tests[], tls_tests[];

#endif
