/* SPDX-License-Identifier: GPL-2.0-only */
/* file_reads.bpf.h - watched programs: bytes that they read from files into their memory. */
#ifndef COPYSCOPE_FILE_READS_BPF_H
#define COPYSCOPE_FILE_READS_BPF_H

#include "socket.bpf.h"
#include "watch.bpf.h"

/* include/uapi/linux/stat.h */
#define S_IFREG 0100000

extern __u64 file_read_calls[FILE_READS_SLOTS];
extern __u64 file_read_bytes[FILE_READS_SLOTS];

/*
 * Return FILE_READS_CNT if the file is not regular, or if no page of it is in the page cache after the read, as with
 * files that the kernel generates (procfs).
 */
static __always_inline enum file_reads file_read_kind(const struct file *file)
{
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFREG)
		return FILE_READS_CNT;
	if (BPF_CORE_READ(file, f_flags) & FLAG_DIRECT)
		return FILE_READS_DIRECT;
	return BPF_CORE_READ(file, f_mapping, nrpages) ? FILE_READS_CACHED : FILE_READS_CNT;
}

static __always_inline void count_file_read(const struct file *file, enum file_call call, __u64 bytes)
{
	enum file_reads kind = file_read_kind(file);

	if (kind == FILE_READS_CNT)
		return;
	add_atomic(&file_read_calls[BOUNDED(FILE_READS_AT(kind, call), FILE_READS_SLOTS)], 1);
	add_atomic(&file_read_bytes[BOUNDED(FILE_READS_AT(kind, call), FILE_READS_SLOTS)], bytes);
}

/* Count a call that may have read an unknown number of bytes. */
static __always_inline void count_unsized_read(enum file_call call)
{
	add_atomic(&file_read_calls[BOUNDED(FILE_READS_AT(FILE_READS_UNSEEN, call), FILE_READS_SLOTS)], 1);
}

#endif
