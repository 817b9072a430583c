/* A set of events that one thread walks while another adds to it, as the burst thread and the commands do. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../src/collector/sampling/events.h"
#include "check.h"

#define MANY 5000

static struct events events;
static _Atomic int walks;
static _Atomic bool done;

/* A request that any file obeys. */
static void *walk(void *err)
{
	while (!done && !*(int *)err) {
		*(int *)err = events__switch(&events, FIOCLEX);
		walks++;
	}
	return NULL;
}

THREADS_TEST("events: walked while it grows")
{
	int fd = open("/dev/null", O_RDONLY), err = 0, walked;
	pthread_t thread;

	CHECK(fd >= 0);
	done = false;
	CHECK(!pthread_create(&thread, NULL, walk, &err));
	while (!walks)
		usleep(100);
	for (int i = 0; i < MANY; i++) {
		CHECK(!events__put(&events, NULL, fd));
		/* Some walks between growing and growing. */
		walked = walks;
		while (i % 500 == 0 && walks == walked)
			usleep(10);
	}
	done = true;
	pthread_join(thread, NULL);
	CHECK_EQUAL(err, 0);
	CHECK_EQUAL(events.count, MANY);
	events__close(&events);
	CHECK_EQUAL(events.count, 0);
	close(fd);
}

THREADS_TEST("events: all are switched")
{
	int fds[200];

	for (int i = 0; i < 200; i++) {
		fds[i] = open("/dev/null", O_RDONLY);
		CHECK(fds[i] >= 0 && !events__put(&events, NULL, fds[i]));
	}
	CHECK_EQUAL(events__switch(&events, FIOCLEX), 0);
	for (int i = 0; i < 200; i++) {
		CHECK_EQUAL(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
		close(fds[i]);
	}
	events__close(&events);
}
