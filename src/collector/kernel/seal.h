/* SPDX-License-Identifier: GPL-2.0-only */
/* seal.h - restricts the system calls of the collector once its programs are loaded. */
#ifndef COLLECTOR_SEAL_H
#define COLLECTOR_SEAL_H

/*
 * From now on execve(2) gains no privileges (no_new_privs), and system calls that the collector does not need fail with
 * EPERM. The collector starts no program, opens no socket, writes no file and signals no process. A call fails instead
 * of killing the process, so that the error is reported and the measurement is kept. Permanent, for the calling thread
 * and threads that it starts later. Return 0 or -errno.
 */
int seal__calls(void);

#endif
