// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE /* memfd_create */
#include "kernel_work.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (8UL << 20)

static int write_and_read_back(int fd, char *memory)
{
	ssize_t done;

	for (size_t at = 0; at < SIZE; at += done) {
		done = pwrite(fd, memory + at, SIZE - at, at);
		if (done <= 0)
			return done ? -errno : -ENOSPC;
	}
	for (size_t at = 0; at < SIZE; at += done) {
		done = pread(fd, memory + SIZE + at, SIZE - at, at);
		if (done <= 0)
			return done ? -errno : -EIO;
	}
	return 0;
}

int kernel_work(void)
{
	char *memory = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd, err;

	if (memory == MAP_FAILED)
		return -errno;
	fd = memfd_create("copyscope-trial", MFD_CLOEXEC);
	err = fd < 0 ? -errno : write_and_read_back(fd, memory);
	if (fd >= 0)
		close(fd);
	munmap(memory, 2 * SIZE);
	return err;
}
