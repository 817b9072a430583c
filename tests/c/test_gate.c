// SPDX-License-Identifier: GPL-2.0-only
#include <poll.h>
#include <stddef.h>

#include "check.h"
#include "gate.h"

#define THREADS 4
#define ROUNDS 300

struct worker {
	struct gate *gate;
	uint64_t steps;		/* deliberately not atomic: the gate must order the accesses */
	uint64_t limit;
	pthread_t thread;
};

static void *work(void *argument)
{
	struct worker *worker = argument;

	do {
		while (worker->steps < worker->limit && gate__is_open(worker->gate))
			worker->steps++;
	} while (gate__park(worker->gate, worker->steps == worker->limit));
	return NULL;
}

static bool wait_all_parked(struct gate *gate)
{
	struct pollfd event = { .fd = gate->event_fd, .events = POLLIN };

	while (!gate__all_parked(gate)) {
		if (poll(&event, 1, 5000) != 1)
			return false;
		gate__acknowledge(gate);
	}
	return true;
}

THREADS_TEST("gate: nothing moves while all are parked")
{
	struct worker workers[THREADS];
	struct gate gate;

	CHECK_EQUAL(gate__init(&gate, THREADS), 0);
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .gate = &gate, .limit = UINT64_MAX };
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t before = 0, after = 0;

		CHECK(wait_all_parked(&gate));
		for (int i = 0; i < THREADS; i++)
			before += workers[i].steps;
		for (int i = 0; i < THREADS; i++)
			after += workers[i].steps;
		CHECK_EQUAL(before, after);
		gate__set(&gate, GATE_OPEN);
		gate__set(&gate, GATE_CLOSED);
	}
	CHECK(wait_all_parked(&gate));
	CHECK(!gate__all_retired(&gate));
	gate__set(&gate, GATE_DISMISSED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	gate__destroy(&gate);
}

THREADS_TEST("gate: who has finished stays parked")
{
	struct worker workers[THREADS];
	struct gate gate;

	CHECK_EQUAL(gate__init(&gate, THREADS), 0);
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .gate = &gate, .limit = 1000 * (i + 1) };
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	gate__set(&gate, GATE_OPEN);
	while (!gate__all_retired(&gate)) {
		struct pollfd event = { .fd = gate.event_fd, .events = POLLIN };

		CHECK_EQUAL(poll(&event, 1, 5000), 1);
		gate__acknowledge(&gate);
	}
	CHECK(gate__all_parked(&gate));
	gate__set(&gate, GATE_CLOSED);
	gate__set(&gate, GATE_OPEN);
	CHECK(gate__all_parked(&gate));
	gate__set(&gate, GATE_DISMISSED);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		CHECK_EQUAL(workers[i].steps, workers[i].limit);
	}
	gate__destroy(&gate);
}
