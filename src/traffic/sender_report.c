// SPDX-License-Identifier: GPL-2.0-only
#include <stdlib.h>

#include "clock.h"
#include "report.h"
#include "sender.h"

static void add_counts(struct send_counts *sum, const struct send_counts *counts)
{
	sum->messages += counts->messages;
	sum->bytes += counts->bytes;
	sum->sendto_calls += counts->sendto_calls;
	sum->sendmsg_calls += counts->sendmsg_calls;
	sum->sendmmsg_calls += counts->sendmmsg_calls;
	sum->sendmmsg_sends += counts->sendmmsg_sends;
	sum->writev_calls += counts->writev_calls;
	sum->sendfile_calls += counts->sendfile_calls;
	sum->splice_calls += counts->splice_calls;
	sum->vmsplice_calls += counts->vmsplice_calls;
	sum->spliced_calls += counts->spliced_calls;
	sum->spliced_bytes += counts->spliced_bytes;
	sum->taken_calls += counts->taken_calls;
	sum->taken_bytes += counts->taken_bytes;
	sum->ring_requests += counts->ring_requests;
	sum->ring_enters += counts->ring_enters;
	sum->short_sends += counts->short_sends;
	sum->eagain += counts->eagain;
	sum->gather_timed_messages += counts->gather_timed_messages;
	sum->gather_timed_ns += counts->gather_timed_ns;
	sum->gather_broken_messages += counts->gather_broken_messages;
}

static void add_zerocopy(struct zerocopy_counts *sum, const struct zerocopy_counts *counts)
{
	sum->sends += counts->sends;
	sum->bytes_sent += counts->bytes_sent;
	sum->completions += counts->completions;
	sum->copied += counts->copied;
	sum->bytes_copied += counts->bytes_copied;
	sum->notifications += counts->notifications;
	sum->enobufs += counts->enobufs;
	sum->errqueue_reads += counts->errqueue_reads;
	sum->waits += counts->waits;
	sum->wait_ns += counts->wait_ns;
	sum->in_flight += counts->in_flight;
	/* The maximum over the connections, because each connection has a separate ring of messages. */
	if (counts->max_in_flight > sum->max_in_flight)
		sum->max_in_flight = counts->max_in_flight;
}

/*
 * Return the number of io_uring requests, and the CPU time of io_uring's threads: the CPU time of the process minus
 * that of our threads.
 */
static json_t *io_uring_json(const struct sender *sender, uint64_t requests)
{
	int64_t workers_ns = clock__read_ns(CLOCK_PROCESS_CPUTIME_ID) - clock__read_ns(CLOCK_THREAD_CPUTIME_ID);
	json_t *object = json_object();

	for (unsigned int i = 0; i < sender->started; i++)
		workers_ns -= sender_thread__cpu_ns(&sender->threads[i]);
	report__set(object, "requests", requests);
	report__set(object, "worker_cpu_ns", workers_ns < 0 ? 0 : workers_ns);
	return object;
}

/* Return the number of TLS records: null after a short send, because the kernel may then have split a record in two. */
static json_t *tls_records_json(const struct options *o, const struct send_counts *counts)
{
	bool by_field = o->strategy->by_field && o->push != PUSH_MORE;

	if (!o->tls || counts->short_sends)
		return json_null();
	return json_integer((json_int_t)(counts->messages * tls__records(&o->shape, by_field)));
}

/* Return the calls and bytes that a relay received from its upstream connection; null if the strategy is not a relay. */
static json_t *taken_json(const struct strategy *strategy, const struct send_counts *counts)
{
	if (!strategy->relays)
		return json_null();
	return json_pack("{s:I, s:I, s:I}", "calls", (json_int_t)counts->taken_calls, "bytes", (json_int_t)counts->taken_bytes,
			 "spliced_bytes", (json_int_t)(strategy->splices ? counts->taken_bytes : 0));
}

void sender__add_totals(const struct sender *sender, json_t *totals)
{
	struct zerocopy_counts zerocopy = { 0 };
	struct send_counts counts = { 0 };

	for (unsigned int i = 0; i < sender->started; i++) {
		add_counts(&counts, &sender->threads[i].flow.counts);
		add_zerocopy(&zerocopy, &sender->threads[i].flow.zerocopy.counts);
	}
	report__add_usage(totals);
	report__add_sent(totals, &counts, sender->options.strategy->reap ? &zerocopy : NULL,
			 strategy__gives_pages(sender->options.strategy), sender->options.strategy->in_ring);
	json_object_set_new(totals, "io_uring", sender->options.strategy->in_ring
							? io_uring_json(sender, counts.ring_requests) : json_null());
	json_object_set_new(totals, "taken", taken_json(sender->options.strategy, &counts));
	json_object_set_new(totals, "tls_records", tls_records_json(&sender->options, &counts));
}

/* Return the memory of all messages, and the part on huge pages: the kernel may provide fewer huge pages than requested. */
static json_t *ring_json(const struct sender *sender)
{
	json_t *object = json_object();

	report__set(object, "bytes", message_shape__bytes(&sender->options.shape) * sender->started);
	json_object_set_new(object, "huge_bytes", sender->huge_bytes < 0 ? json_null()
							: json_integer(sender->huge_bytes));
	return object;
}

static void add_histograms(const struct sender *sender, json_t *report)
{
	struct histogram *merged = calloc(3, sizeof(*merged));
	const struct options *options = &sender->options;
	json_t *histograms = json_object();

	if (!merged) {
		json_array_append_new(sender->errors, json_string("histograms: out of memory"));
		json_object_set_new(report, "histograms", json_null());
		json_decref(histograms);
		return;
	}
	for (unsigned int i = 0; i < sender->started; i++) {
		histogram__merge(&merged[0], &sender->threads[i].send_time);
		histogram__merge(&merged[1], &sender->threads[i].completion_time);
		histogram__merge(&merged[2], &sender->threads[i].round_trip);
	}
	json_object_set_new(histograms, "send_time_ns", report__histogram(&merged[0]));
	json_object_set_new(histograms, "completion_time_ns",
			    report__histogram(options->strategy->reap ? &merged[1] : NULL));
	json_object_set_new(histograms, "round_trip_ns",
			    report__histogram(options->mode == MODE_RR ? &merged[2] : NULL));
	json_object_set_new(report, "histograms", histograms);
	free(merged);
}

static uint64_t buffered_bytes(const struct thread_summary *summary)
{
	int64_t window = tcp_state__peer_window_bytes(&summary->tcp);
	int64_t own = summary->sndbuf_bytes;

	if (own < 0)
		return 0;
	/* Before Linux 5.4 TCP_INFO has no window. Assume that the receive buffer is as large as the send buffer. */
	return own + (window < 0 ? own : window);
}

json_t *sender__report(struct sender *sender)
{
	const struct strategy_claim *claim = &sender->options.strategy->claim;
	json_t *report = control__event("report");
	struct run_length length = { .sending_ns = sender->sending_ns };
	json_t *threads = json_array();
	uint64_t arrived_ns = 0;

	for (unsigned int i = 0; i < sender->started; i++) {
		const struct thread_summary *summary = &sender->threads[i].summary;

		length.bytes += summary->bytes;
		length.buffered_bytes += buffered_bytes(summary);
		if (sender->threads[i].arrived_ns > arrived_ns)
			arrived_ns = sender->threads[i].arrived_ns;
		json_array_append_new(threads, report__thread(summary));
	}
	sender__add_totals(sender, report);
	json_object_set_new(report, "impl", json_string(sender->options.strategy->name));
	json_object_set_new(report, "claim", json_pack("{s:i, s:i, s:s}", "user_copies", claim->user_copies,
							"kernel_copies", claim->kernel_copies, "what", claim->what));
	json_object_set_new(report, "ring", ring_json(sender));
	json_object_set_new(report, "tls", tls__json(sender->options.tls, true, &sender->tls_before));
	json_object_set_new(report, "threads", threads);
	if (sender->options.rewrite == REWRITE_ARRIVED)
		report__set(report, "arrived_ns", arrived_ns);
	add_histograms(sender, report);
	report__add_run(report, &sender->options, sender->interrupted, json_incref(sender->errors),
			&length);
	return report;
}
