// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

#include "report.h"

#define COUNT_NAME(name) #name,
static const char *const columns[] = { COUNT_COLUMNS(COUNT_NAME) };
static const char *const side_names[SIDE_CNT] = {
	[SIDE_OTHER] = "other", [SIDE_SENDER] = "sender", [SIDE_RECEIVER] = "receiver",
};

#define DIGEST_START 0xcbf29ce484222325ull	/* FNV-1a */
#define DIGEST_PRIME 0x100000001b3ull

/* Adds all output to the digest. */
struct writer {
	FILE *out;
	uint64_t digest;
};

__attribute__((format(printf, 2, 3)))
static void put(struct writer *writer, const char *format, ...)
{
	char text[128];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (const char *at = text; *at; at++)
		writer->digest = (writer->digest ^ (unsigned char)*at) * DIGEST_PRIME;
	fputs(text, writer->out);
}

static bool is_empty(const struct counts *counts)
{
	for (unsigned int i = 0; i < COUNT_CNT; i++)
		if (counts->of[i])
			return false;
	return true;
}

static void put_frames(struct writer *writer, const struct stacks *stacks, uint32_t index)
{
	put(writer, "[");
	for (bool first = true; !node__is_root(stacks, index); index = stacks->nodes[index].parent, first = false)
		put(writer, "%s\"%" PRIx64 "\"", first ? "" : ",", stacks->nodes[index].function);
	/* Roots after the SIDE_CNT roots of user mode belong to stacks whose start was not seen. */
	put(writer, index < SIDE_CNT ? "]" : ",\"0\"]");
}

static bool is_unrooted(const struct stacks *stacks, uint32_t index)
{
	while (!node__is_root(stacks, index))
		index = stacks->nodes[index].parent;
	return index >= SIDE_CNT;
}

static int finish_line(FILE *out)
{
	fputc('\n', out);
	return fflush(out) || ferror(out) ? -EIO : 0;
}

int report__write(FILE *out, unsigned int number, const struct machine *machine)
{
	const struct stacks *stacks = &machine->stacks;
	struct writer writer = { out, DIGEST_START };
	uint64_t unrooted = 0;
	bool first = true;

	fprintf(out, "{\"measurement\":%u,\"columns\":[", number);
	for (unsigned int i = 0; i < COUNT_CNT; i++)
		fprintf(out, "%s\"%s\"", i ? "," : "", columns[i]);
	fprintf(out, "],\"stacks\":[");
	for (uint32_t i = 0; i < stacks->node_count; i++) {
		const struct node *node = &stacks->nodes[i];

		if (is_empty(&node->counts))
			continue;
		put(&writer, "%s{\"side\":\"%s\",\"frames\":", first ? "" : ",", side_names[node->side]);
		put_frames(&writer, stacks, i);
		put(&writer, ",\"counts\":[");
		for (unsigned int column = 0; column < COUNT_CNT; column++)
			put(&writer, "%s%" PRIu64, column ? "," : "", node->counts.of[column]);
		put(&writer, "]");
		/* Excluded from the digest, because only the test of the samples reads it. */
		fprintf(out, ",\"executed\":%" PRIu64, node->executed);
		put(&writer, "}");
		first = false;
		if (is_unrooted(stacks, i))
			unrooted += node->counts.of[COUNT_instructions];
	}
	fprintf(out, "],\"lost\":{\"accesses\":%" PRIu64 ",\"returns\":%" PRIu64 ",\"calls\":%" PRIu64
		",\"unrooted_instructions\":%" PRIu64 ",\"memory\":%s},\"digest\":\"%016" PRIx64 "\"", machine->lost_accesses,
		stacks->lost_returns, stacks->lost_calls, unrooted, stacks->failed ? "true" : "false", writer.digest);
	fputc('}', out);
	return finish_line(out);
}

int report__end(FILE *out, unsigned int measurements)
{
	fprintf(out, "{\"end\":true,\"measurements\":%u}", measurements);
	return finish_line(out);
}

void report__error(FILE *out, const char *thing, const char *cause)
{
	/*
	 * No JSON escaping is needed: both consist of our own words and of names of symbols or files that the caller
	 * made.
	 */
	fprintf(out, "{\"error\":\"simulator: %s: %s\"}", thing, cause);
	finish_line(out);
	fprintf(stderr, "simulator: %s: %s\n", thing, cause);
}
