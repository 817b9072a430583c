// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE /* sched_getcpu() */
#include "privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>

/* CAP_BPF and CAP_PERFMON are new in 5.8 and missing in older linux/capability.h headers. */
#ifndef CAP_BPF
#define CAP_PERFMON 38
#define CAP_BPF 39
#endif

#define BIT(capability) (1ULL << (capability))

static int get_permitted(uint64_t *permitted)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};

	if (syscall(SYS_capget, &header, data))
		return -errno;
	*permitted = (uint64_t)data[1].permitted << 32 | data[0].permitted;
	return 0;
}

static int set_capabilities(uint64_t permitted, uint64_t effective)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {
		{ .permitted = permitted, .effective = effective },
		{ .permitted = permitted >> 32, .effective = effective >> 32 },
	};

	return syscall(SYS_capset, &header, data) ? -errno : 0;
}

/* Some distributions restrict perf_event_open(2) and bpf(2) further, for example to CAP_SYS_ADMIN. */
static bool can_count(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.disabled = 1,
	};
	int event = syscall(SYS_perf_event_open, &attr, -1, sched_getcpu(), -1, PERF_FLAG_FD_CLOEXEC);
	int map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "try_bpf", sizeof(uint32_t), sizeof(uint32_t), 1, NULL);

	if (event >= 0)
		close(event);
	if (map >= 0)
		close(map);
	return event >= 0 && map >= 0;
}

int privileges__drop(bool symbols_read)
{
	uint64_t permitted = 0, kept;
	int err = get_permitted(&permitted);

	if (err)
		return err;
	kept = permitted & (BIT(CAP_BPF) | BIT(CAP_PERFMON));
	if (!symbols_read)
		kept |= permitted & (BIT(CAP_SYSLOG) | BIT(CAP_SYS_ADMIN));
	err = set_capabilities(permitted, kept);
	if (!err && !can_count())
		kept |= permitted & BIT(CAP_SYS_ADMIN);
	return err ?: set_capabilities(kept, kept);
}
