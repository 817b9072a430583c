/* SPDX-License-Identifier: GPL-2.0 */
/* seal.h - the system calls that are left to the collector when its programs are loaded. */
#ifndef COLLECTOR_SEAL_H
#define COLLECTOR_SEAL_H

/*
 * From here on no privilege is gained by execve(2) (no_new_privs), and any call that the collector does not need fails with EPERM:
 * it starts no program, opens no socket, writes no file, and signals nobody. It fails and does not kill: what could not be done is
 * then said as any other error is, and what was measured is kept. Returns 0 or -errno; for good, of the calling thread and of
 * those that it starts later.
 */
int seal__calls(void);

#endif
