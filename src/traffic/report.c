// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "memory.h"
#include "report.h"

#define SHORTEST_RUN_NS (50 * NSEC_PER_MSEC)

static uint64_t timeval_ns(const struct timeval *time)
{
	return time->tv_sec * NSEC_PER_SEC + time->tv_usec * 1000;
}

void report__add_usage(json_t *totals)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	report__set(totals, "t_ns", clock__now_ns());
	report__set(totals, "process_cpu_ns", clock__read_ns(CLOCK_PROCESS_CPUTIME_ID));
	report__set(totals, "user_ns", timeval_ns(&usage.ru_utime));
	report__set(totals, "system_ns", timeval_ns(&usage.ru_stime));
	report__set(totals, "voluntary_switches", usage.ru_nvcsw);
	report__set(totals, "involuntary_switches", usage.ru_nivcsw);
}

static json_t *zerocopy_json(const struct zerocopy_counts *counts)
{
	json_t *object = json_object();

	report__set(object, "sends", counts->sends);
	report__set(object, "bytes_sent", counts->bytes_sent);
	report__set(object, "completions", counts->completions);
	report__set(object, "copied", counts->copied);
	report__set(object, "bytes_copied", counts->bytes_copied);
	report__set(object, "enobufs", counts->enobufs);
	report__set(object, "notifications", counts->notifications);
	report__set(object, "in_flight", counts->in_flight);
	report__set(object, "max_in_flight", counts->max_in_flight);
	report__set(object, "errqueue_reads", counts->errqueue_reads);
	report__set(object, "waits", counts->waits);
	report__set(object, "wait_ns", counts->wait_ns);
	return object;
}

void report__add_sent(json_t *totals, const struct send_counts *counts,
		      const struct zerocopy_counts *zerocopy, bool gives_pages, bool in_ring)
{
	json_t *calls = json_object();

	report__set(calls, "sendto", counts->sendto_calls);
	report__set(calls, "sendmsg", counts->sendmsg_calls);
	report__set(calls, "sendmmsg", counts->sendmmsg_calls);
	report__set(calls, "writev", counts->writev_calls);
	report__set(calls, "sendfile", counts->sendfile_calls);
	report__set(calls, "splice", counts->splice_calls);
	report__set(calls, "vmsplice", counts->vmsplice_calls);
	if (in_ring)
		report__set(calls, "io_uring", counts->ring_enters);
	report__set(totals, "bytes", counts->bytes);
	report__set(totals, "messages", counts->messages);
	report__set(totals, "calls", send_counts__calls(counts));
	json_object_set_new(totals, "send_syscalls", calls);
	report__set(totals, "short_sends", counts->short_sends);
	report__set(totals, "eagain", counts->eagain);
	report__set(totals, "gather_timed_messages", counts->gather_timed_messages);
	report__set(totals, "gather_timed_ns", counts->gather_timed_ns);
	report__set(totals, "gather_broken_messages", counts->gather_broken_messages);
	json_object_set_new(totals, "zerocopy", zerocopy ? zerocopy_json(zerocopy) : json_null());
	json_object_set_new(totals, "spliced", !gives_pages ? json_null() :
			    json_pack("{s:I, s:I}", "calls", (json_int_t)counts->spliced_calls,
				      "bytes", (json_int_t)counts->spliced_bytes));
}

static json_t *limits_json(void)
{
	json_t *limits = json_object();
	uint64_t memlock = memlock__limit_bytes();
	FILE *file = fopen("/proc/sys/net/core/optmem_max", "re");
	long optmem = -1;

	if (file) {
		if (fscanf(file, "%ld", &optmem) != 1)
			optmem = -1;
		fclose(file);
	}
	json_object_set_new(limits, "memlock_bytes",
			    memlock == MEMLOCK_UNLIMITED ? json_null() : json_integer(memlock));
	json_object_set_new(limits, "memlock_enforced", json_boolean(memlock__enforced()));
	json_object_set_new(limits, "optmem_max_bytes", optmem < 0 ? json_null() : json_integer(optmem));
	return limits;
}

/*
 * Report whether the run was too short to measure the network. With --messages, all bytes may fit into the socket buffers, so
 * that sending ends before the network matters. With --duration, a run with so few bytes is merely slow.
 */
static void add_too_short(json_t *report, bool by_count, const struct run_length *length)
{
	char reason[160];

	if (length->sending_ns < SHORTEST_RUN_NS)
		snprintf(reason, sizeof(reason), "run: %.1f ms of traffic, less than %llu ms",
			 length->sending_ns / 1e6, SHORTEST_RUN_NS / NSEC_PER_MSEC);
	else if (by_count && length->bytes <= length->buffered_bytes)
		snprintf(reason, sizeof(reason), "run: %llu bytes, not more than the socket buffers hold "
			 "(%llu)", (unsigned long long)length->bytes,
			 (unsigned long long)length->buffered_bytes);
	else
		reason[0] = '\0';
	json_object_set_new(report, "too_short", json_boolean(reason[0]));
	json_object_set_new(report, "too_short_reason", reason[0] ? json_string(reason) : json_null());
}

void report__add_run(json_t *report, const struct options *options, bool interrupted, json_t *errors,
		     const struct run_length *length)
{
	json_object_set_new(report, "role", json_string(role_names[options->role]));
	report__set(report, "pid", getpid());
	json_object_set_new(report, "options", options__json(options));
	json_object_set_new(report, "limits", limits_json());
	report__set(report, "sending_ns", length->sending_ns);
	add_too_short(report, options->messages > 0, length);
	json_object_set_new(report, "interrupted", json_boolean(interrupted));
	json_object_set_new(report, "errors", errors);
}

static json_t *size_or_null(int bytes)
{
	return bytes < 0 ? json_null() : json_integer(bytes);
}

json_t *report__thread(const struct thread_summary *thread)
{
	json_t *object = json_object();

	report__set(object, "tid", thread->tid);
	json_object_set_new(object, "cpu_ns",
			    thread->cpu_ns < 0 ? json_null() : json_integer(thread->cpu_ns));
	report__set(object, "bytes", thread->bytes);
	json_object_set_new(object, "messages",
			    thread->messages < 0 ? json_null() : json_integer(thread->messages));
	report__set(object, "calls", thread->calls);
	json_object_set_new(object, "sndbuf_bytes", size_or_null(thread->sndbuf_bytes));
	json_object_set_new(object, "rcvbuf_bytes", size_or_null(thread->rcvbuf_bytes));
	json_object_set_new(object, "congestion_control", json_string(thread->congestion));
	json_object_set_new(object, "tcp_info", tcp_state__json(&thread->tcp));
	return object;
}

json_t *report__histogram(const struct histogram *histogram)
{
	static const struct { const char *key; double fraction; } quantiles[] = {
		{ "p50", 0.5 }, { "p90", 0.9 }, { "p99", 0.99 }, { "p999", 0.999 },
	};
	json_t *object, *buckets;
	bool any;

	if (!histogram)
		return json_null();
	any = histogram->count;
	object = json_object();
	report__set(object, "count", histogram->count);
	json_object_set_new(object, "min", any ? json_integer(histogram->min) : json_null());
	json_object_set_new(object, "max", any ? json_integer(histogram->max) : json_null());
	json_object_set_new(object, "mean", any ? json_real((double)histogram->sum / histogram->count)
						: json_null());
	for (size_t i = 0; i < sizeof(quantiles) / sizeof(*quantiles); i++) {
		uint64_t value = histogram__quantile(histogram, quantiles[i].fraction);

		json_object_set_new(object, quantiles[i].key, any ? json_integer(value) : json_null());
	}
	buckets = json_array();
	for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++)
		if (histogram->buckets[i])
			json_array_append_new(buckets, json_pack("[I,I,I]",
				(json_int_t)histogram__low(i), (json_int_t)histogram__high(i),
				(json_int_t)histogram->buckets[i]));
	json_object_set_new(object, "buckets", buckets);
	return object;
}
