// SPDX-License-Identifier: GPL-2.0-only
#include <unistd.h>

#include "report.h"
#include "receiver.h"

static json_t *verify_json(const struct receiver *receiver)
{
	uint64_t checked = 0, wrong = 0;
	json_t *object, *first = NULL;

	if (!receiver->options.verify)
		return json_null();
	for (unsigned int i = 0; i < receiver->started; i++) {
		const struct receive_counts *counts = &receiver->threads[i].counts;
		uint64_t own = count__get(&counts->wrong_bytes);

		checked += count__get(&counts->checked_bytes);
		wrong += own;
		/*
		 * Report the offset of the first wrong byte in the stream of the first connection that has wrong bytes.
		 */
		if (own && !first)
			first = json_integer((json_int_t)count__get(&counts->first_wrong_offset));
	}
	object = json_object();
	report__set(object, "checked_bytes", checked);
	report__set(object, "wrong_bytes", wrong);
	json_object_set_new(object, "first_wrong_offset", first ? first : json_null());
	return object;
}

/* Add bytes that were mapped, spliced or received through io_uring. Keys of unused ways are null. */
static void add_ways(const struct receiver *receiver, json_t *totals, uint64_t calls)
{
	uint64_t mapped_calls = 0, mapped = 0, beside = 0, spliced = 0, requests = 0, enters = 0;
	enum way way = receiver->options.reading->way;

	for (unsigned int i = 0; i < receiver->started; i++) {
		const struct receive_counts *counts = &receiver->threads[i].counts;

		mapped_calls += count__get(&counts->mapped_calls);
		mapped += count__get(&counts->mapped_bytes);
		beside += count__get(&counts->beside_bytes);
		spliced += count__get(&counts->spliced_bytes);
		requests += count__get(&counts->ring_requests);
		enters += count__get(&counts->ring_enters);
	}
	json_object_set_new(totals, "mapped", way != WAY_MAPPED ? json_null() :
			    json_pack("{s:I, s:I, s:I, s:I}", "calls", (json_int_t)mapped_calls, "bytes", (json_int_t)mapped,
				      "pages", (json_int_t)(mapped / sysconf(_SC_PAGESIZE)),
				      "copied_bytes", (json_int_t)beside));
	json_object_set_new(totals, "spliced", way != WAY_SPLICED ? json_null() :
			    json_pack("{s:I, s:I}", "calls", (json_int_t)calls, "bytes", (json_int_t)spliced));
	json_object_set_new(totals, "io_uring", !receiver->options.reading->in_ring ? json_null() :
			    json_pack("{s:I, s:I}", "requests", (json_int_t)requests, "enters", (json_int_t)enters));
}

/* Return, for each connection, how many bytes of its last message have the old and the new content (--rewrite). */
static json_t *rewritten_json(const struct receiver *receiver)
{
	json_t *array = json_array();

	for (unsigned int i = 0; i < receiver->started; i++) {
		const struct receive_counts *counts = &receiver->threads[i].counts;

		json_array_append_new(array, json_pack("{s:I, s:I}", "old_bytes", (json_int_t)count__get(&counts->old_bytes),
						       "new_bytes", (json_int_t)count__get(&counts->new_bytes)));
	}
	return array;
}

void receiver__add_totals(const struct receiver *receiver, json_t *totals)
{
	uint64_t bytes = 0, calls = 0, messages = 0, truncated = 0, replies = 0;
	size_t size = receiver->options.shape.size_bytes;

	for (unsigned int i = 0; i < receiver->started; i++) {
		const struct receiver_thread *thread = &receiver->threads[i];
		uint64_t own = receiver_thread__bytes(thread);

		bytes += own;
		messages += size ? own / size : 0;
		calls += count__get(&thread->counts.calls);
		truncated += count__get(&thread->counts.truncated_bytes);
		replies += count__get(&thread->counts.replies);
	}
	report__add_usage(totals);
	report__set(totals, "bytes", bytes);
	json_object_set_new(totals, "messages", size ? json_integer((json_int_t)messages) : json_null());
	report__set(totals, "calls", calls);
	report__set(totals, "replies", replies);
	report__set(totals, "truncated_bytes", truncated);
	add_ways(receiver, totals, calls);
	json_object_set_new(totals, "verify", verify_json(receiver));
	if (receiver->options.rewrite)
		json_object_set_new(totals, "rewritten", rewritten_json(receiver));
}

json_t *receiver__report(struct receiver *receiver)
{
	json_t *report = control__event("report");
	uint64_t first_ns = UINT64_MAX, last_ns = 0;
	struct run_length length = { 0 };
	json_t *threads = json_array();

	for (unsigned int i = 0; i < receiver->started; i++) {
		const struct receiver_thread *thread = &receiver->threads[i];
		int buffer_bytes = thread->summary.rcvbuf_bytes;

		length.bytes += thread->summary.bytes;
		length.buffered_bytes += buffer_bytes > 0 ? buffer_bytes : 0;
		if (thread->first_ns && thread->first_ns < first_ns)
			first_ns = thread->first_ns;
		if (thread->first_ns && thread->last_ns > last_ns)
			last_ns = thread->last_ns;
		json_array_append_new(threads, report__thread(&thread->summary));
	}
	if (last_ns > first_ns)
		length.sending_ns = last_ns - first_ns;
	receiver__add_totals(receiver, report);
	json_object_set_new(report, "impl", json_null());
	json_object_set_new(report, "claim", json_null());
	json_object_set_new(report, "tls", tls__json(receiver->options.tls, false, &receiver->tls_before));
	json_object_set_new(report, "threads", threads);
	json_object_set_new(report, "histograms",
			    json_pack("{s:n,s:n,s:n}", "send_time_ns", "completion_time_ns", "round_trip_ns"));
	report__add_run(report, &receiver->options, receiver->interrupted,
			json_incref(receiver->errors), &length);
	return report;
}
