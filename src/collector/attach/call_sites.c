// SPDX-License-Identifier: GPL-2.0-only
#include "call_sites.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call_decode.h"
#include "kernel/ksyms.h"

/* The running kernel's text, patched and relocated, as an ELF core file (proc(5)). */
#define KERNEL_TEXT "/proc/kcore"
#define NAMES_MAX 8
#define SIZE_MAX_TEXT (64 << 10)

static int read_exactly(int fd, void *to, size_t size, off_t offset)
{
	ssize_t got = pread(fd, to, size, offset);

	return got < 0 ? -errno : (size_t)got < size ? -EIO : 0;
}

static int read_text(int fd, void *to, size_t size, uint64_t address)
{
	Elf64_Ehdr header;
	Elf64_Phdr part;
	int err = read_exactly(fd, &header, sizeof(header), 0);

	for (int i = 0; !err && i < header.e_phnum; i++) {
		err = read_exactly(fd, &part, sizeof(part), header.e_phoff + i * sizeof(part));
		if (!err && part.p_type == PT_LOAD && address >= part.p_vaddr &&
		    address + size <= part.p_vaddr + part.p_memsz)
			return read_exactly(fd, to, size, part.p_offset + (address - part.p_vaddr));
	}
	return err ?: -ENXIO;
}

/*
 * Addresses other than its own by which a function may be called: the instruction after its landing pad (endbr64, bti),
 * and on x86 a thunk named __pfx_NAME in the padding before it, which tracks the call depth (CONFIG_CALL_THUNKS).
 */
#define LANDING_PAD 4

static size_t targets_of(struct call_target targets[NAMES_MAX], const struct ksyms *ksyms, const char *callees)
{
	char list[2 * SYMBOL_MAX], padding[SYMBOL_MAX], *save = NULL, *name;
	size_t count = 0;

	snprintf(list, sizeof(list), "%s", callees);
	for (name = strtok_r(list, "|", &save); name && count < NAMES_MAX; name = strtok_r(NULL, "|", &save)) {
		uint64_t address, before, end;
		const char *symbol = ksyms__range(ksyms, name, &address, &end);

		/* A clone made by the compiler has different arguments. */
		if (!symbol || strcmp(symbol, name))
			continue;
		snprintf(padding, sizeof(padding), "__pfx_%s", name);
		if (!ksyms__range(ksyms, padding, &before, &end))
			before = address;
		targets[count++] = (struct call_target){ .low = before, .high = address + LANDING_PAD };
	}
	return count;
}

/* Return the new number of sites, or -errno. */
static int add_sites(struct call_site sites[CALL_SITES_MAX], int sites_cnt, int fd, const struct ksyms *ksyms, const char *caller,
		     const struct call_target *targets, size_t count)
{
	const struct call_code *code = call_code_here;
	uint64_t address, end;
	const char *name = ksyms__range(ksyms, caller, &address, &end);
	unsigned char *text;
	long offset = -1;
	int err;

	if (!name)
		return sites_cnt;
	if (end - address > SIZE_MAX_TEXT)
		return -EFBIG;
	text = malloc(end - address);
	if (!text)
		return -ENOMEM;
	err = read_text(fd, text, end - address, address);
	while (!err && (offset = call_decode__next(code, text, end - address, address, offset + 1, targets, count)) >= 0) {
		if (sites_cnt == CALL_SITES_MAX) {
			err = -E2BIG;
			break;
		}
		snprintf(sites[sites_cnt].function, sizeof(sites[sites_cnt].function), "%s", name);
		sites[sites_cnt].offset = offset;
		sites[sites_cnt++].after = offset + code->length;
	}
	free(text);
	return err ?: sites_cnt;
}

int call_sites__find(struct call_site sites[CALL_SITES_MAX], const struct ksyms *ksyms, const char *callers,
		     const char *callees, char *reason, size_t reason_size)
{
	char list[2 * SYMBOL_MAX], *save = NULL, *caller;
	struct call_target targets[NAMES_MAX];
	size_t count = targets_of(targets, ksyms, callees);
	int fd, sites_cnt = 0;

	if (!call_code_here || !count) {
		snprintf(reason, reason_size, call_code_here ? "absent in this kernel" :
			 "copyscope cannot decode calls on this architecture");
		return 0;
	}
	fd = open(KERNEL_TEXT, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		sites_cnt = -errno;
	snprintf(list, sizeof(list), "%s", callers);
	for (caller = strtok_r(list, "|", &save); caller && sites_cnt >= 0; caller = strtok_r(NULL, "|", &save))
		sites_cnt = add_sites(sites, sites_cnt, fd, ksyms, caller, targets, count);
	if (fd >= 0)
		close(fd);
	if (sites_cnt == -EPERM || sites_cnt == -EACCES)
		snprintf(reason, reason_size, "%s: %s: needs CAP_SYS_RAWIO and a kernel without lockdown=confidentiality",
			 KERNEL_TEXT, strerror(-sites_cnt));
	else if (sites_cnt == -E2BIG)
		snprintf(reason, reason_size, "more than %d calls", CALL_SITES_MAX);
	else if (sites_cnt < 0)
		snprintf(reason, reason_size, "%s: %s", KERNEL_TEXT, strerror(-sites_cnt));
	else if (!sites_cnt)
		snprintf(reason, reason_size, "TCP's send functions do not call it directly");
	return sites_cnt > 0 ? sites_cnt : 0;
}
