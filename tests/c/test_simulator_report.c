// SPDX-License-Identifier: GPL-2.0-only
/* Tests of the simulator's output: one line of JSON for each measurement. */
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/simulator/report.h"
#include "check.h"

static struct machine machine;
#define stacks machine.stacks

/* Add three rows: user mode of the sender, its system call, and a stack whose start was not seen. */
static void run_a_little(uint64_t instructions)
{
	stacks__switch(&stacks, 0, 0x10000);
	stacks__enter(&stacks, 0, 0x1000, BLOCK_KERNEL, true);
	stacks__counts(&stacks, 0)->of[COUNT_instructions] += 7;
	stacks__set_side(&stacks, 0, SIDE_SENDER);
	stacks__enter(&stacks, 0, 0, BLOCK_USER, false);
	stacks__counts(&stacks, 0)->of[COUNT_instructions] += instructions;
	stacks__enter(&stacks, 0, 0xffffffff81e00000, BLOCK_SYSCALL, true);
	stacks__call(&stacks, 0, 0x13f50);
	stacks__enter(&stacks, 0, 0xffffffff81000400, BLOCK_KERNEL, true);
	stacks__counts(&stacks, 0)->of[COUNT_read_bytes] += 64;
}

/* Return the line and its parsed JSON. The caller frees both. */
static json_t *written(unsigned int number)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	json_t *line = NULL;

	if (out && !report__write(out, number, &machine) && !fclose(out) && strchr(text, '\n') == text + length - 1)
		line = json_loads(text, 0, NULL);
	free(text);
	return line;
}

TEST("simulator: a measurement is a line of JSON")
{
	json_t *line, *again, *other, *rows, *frames;
	uint64_t instructions = 0, bytes = 0, calls = 0;

	CHECK_EQUAL(stacks__open(&stacks, 2), 0);
	machine.lost_accesses = 3;
	run_a_little(100);
	line = written(4);
	again = written(4);
	run_a_little(100);
	other = written(5);
	CHECK(line && again && other);
	CHECK_EQUAL(json_integer_value(json_object_get(line, "measurement")), 4);
	CHECK_EQUAL(json_array_size(json_object_get(line, "columns")), COUNT_CNT);
	rows = json_object_get(line, "stacks");
	/* One of the stacks is that of entry_SYSCALL_64, which was called. */
	CHECK_EQUAL(json_array_size(rows), 4);
	for (size_t i = 0; i < json_array_size(rows); i++) {
		json_t *counts = json_object_get(json_array_get(rows, i), "counts");

		instructions += json_integer_value(json_array_get(counts, COUNT_instructions));
		bytes += json_integer_value(json_array_get(counts, COUNT_read_bytes));
		calls += json_integer_value(json_array_get(counts, COUNT_calls));
	}
	/* A system call is not counted among the stacks whose start was not seen. */
	CHECK_EQUAL(instructions, 107);
	CHECK_EQUAL(bytes, 64);
	CHECK_EQUAL(calls, 3);
	frames = json_object_get(json_array_get(rows, 0), "frames");
	CHECK_EQUAL(json_array_size(frames), 0);
	frames = json_object_get(json_array_get(rows, 1), "frames");
	CHECK(!strcmp(json_string_value(json_array_get(frames, 0)), "1000"));
	CHECK(!strcmp(json_string_value(json_array_get(frames, 1)), "0"));
	frames = json_object_get(json_array_get(rows, 3), "frames");
	CHECK(!strcmp(json_string_value(json_array_get(frames, 0)), "ffffffff81000400"));
	CHECK(!strcmp(json_string_value(json_array_get(frames, 1)), "ffffffff81e00000"));
	CHECK_EQUAL(json_integer_value(json_object_get(json_object_get(line, "lost"), "accesses")), 3);
	CHECK_EQUAL(json_integer_value(json_object_get(json_object_get(line, "lost"), "unrooted_instructions")), 7);
	CHECK(json_equal(line, again));
	CHECK(!json_equal(json_object_get(line, "digest"), json_object_get(other, "digest")));
	json_decref(line);
	json_decref(again);
	json_decref(other);
	stacks__close(&stacks);
}

TEST("simulator: a full disk is said")
{
	FILE *out = fopen("/dev/full", "w");

	CHECK(out);
	CHECK_EQUAL(stacks__open(&stacks, 2), 0);
	CHECK(report__write(out, 1, &machine) < 0);
	CHECK(report__end(out, 1) < 0);
	stacks__close(&stacks);
	fclose(out);
}
