/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * TEST("sentence") { ... } defines and registers a test. The first failing check ends it. The thread sanitizer runs only
 * THREADS_TEST()s, because it takes ten times as long.
 */
struct test {
	const char *name;
	void (*run)(void);
	bool threads;
	struct test *next;
};

void test__add(struct test *test);

#define TEST_JOIN(left, right) left##right
#define TEST_AT(line, sentence, threads)                                                   \
	static void TEST_JOIN(test_, line)(void);                                          \
	__attribute__((constructor)) static void TEST_JOIN(add_test_, line)(void)          \
	{                                                                                  \
		static struct test test = { sentence, TEST_JOIN(test_, line), threads, NULL }; \
		test__add(&test);                                                          \
	}                                                                                  \
	static void TEST_JOIN(test_, line)(void)
#define TEST_OF(line, sentence, threads) TEST_AT(line, sentence, threads)
#define TEST(sentence) TEST_OF(__LINE__, sentence, false)
#define THREADS_TEST(sentence) TEST_OF(__LINE__, sentence, true)

extern bool check_failed;

#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			printf("  %s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
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

/* Return the next number of a sequence that is the same in every run, so that a failure can be repeated. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

#endif
