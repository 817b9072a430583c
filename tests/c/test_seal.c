// SPDX-License-Identifier: GPL-2.0-only
/* Tests of seal.h: system calls that a sealed process may still make. Each test runs in a child, because the seal is permanent. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/collector/kernel/seal.h"
#include "check.h"

#define SEALED_BADLY 200

/* Make a call in a sealed child. Return 0 or its errno. */
static int sealed(int (*call)(void))
{
	pid_t child = fork();
	int status;

	if (!child) {
		if (seal__calls())
			_exit(SEALED_BADLY);
		errno = 0;
		_exit(call() < 0 ? errno : 0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static int start_program(void)
{
	return execl("/bin/true", "true", NULL);
}

static int open_socket(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

/* Signal the own process group, which is allowed without the seal. */
static int signal_others(void)
{
	return kill(0, 0);
}

static int write_file(void)
{
	return open("/dev/null", O_WRONLY);
}

static int make_file(void)
{
	return open("/tmp", O_TMPFILE | O_RDWR, 0600);
}

#ifdef __x86_64__
/* Make a call with the same number in the x32 ABI, where it is a different call. */
static int call_by_x32(void)
{
	return syscall(0x40000000 | SYS_getpid);
}
#endif

static int read_file(void)
{
	char text[16];
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? fd : read(fd, text, sizeof(text));
}

/* Start a child, as the collector does to detach its hooks. */
static int start_child(void)
{
	pid_t child = fork();

	if (!child)
		_exit(0);
	return child;
}

/* Wait until the parent has exited. */
static int wait_for_the_parent(void)
{
	return getppid() < 0 ? -1 : usleep(1);
}

static void *nothing(void *argument)
{
	return argument;
}

static int start_thread(void)
{
	pthread_t thread;
	int err = pthread_create(&thread, NULL, nothing, NULL) ?: pthread_join(thread, NULL);

	errno = err;
	return -!!err;
}

static int seal_again(void)
{
	return seal__calls();
}

TEST("seal: no program, no socket, no signal and no written file is left")
{
	CHECK_EQUAL(sealed(start_program), EPERM);
	CHECK_EQUAL(sealed(open_socket), EPERM);
	CHECK_EQUAL(sealed(signal_others), EPERM);
	CHECK_EQUAL(sealed(write_file), EPERM);
	CHECK_EQUAL(sealed(make_file), EPERM);
	CHECK_EQUAL(sealed(seal_again), EPERM);
#ifdef __x86_64__
	CHECK_EQUAL(sealed(call_by_x32), EPERM);
#endif
}

TEST("seal: reading, a thread and a child are left")
{
	CHECK_EQUAL(sealed(read_file), 0);
	CHECK_EQUAL(sealed(start_thread), 0);
	CHECK_EQUAL(sealed(start_child), 0);
	CHECK_EQUAL(sealed(wait_for_the_parent), 0);
}
