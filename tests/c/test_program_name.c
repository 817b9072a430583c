// SPDX-License-Identifier: GPL-2.0-only
/* Tests of program_name.h: equal names are equal keys, whatever names the process had before. */
#include <string.h>

#include "../../bpf/program_name.h"
#include "check.h"

TEST("program_name: bytes behind the end of a name become 0, the others stay")
{
	for (int length = 0; length < WATCH_COMM; length++) {
		char comm[WATCH_COMM] = { 0 }, expected[WATCH_COMM] = { 0 };
		__u64 words[WATCH_COMM / 8];

		for (int i = 0; i < WATCH_COMM - 1; i++)
			comm[i] = i % 3 ? 'a' + i : (char)0x80;
		comm[length] = 0;
		/* The byte behind the end is the one that is hardest to tell from an end. */
		if (length + 1 < WATCH_COMM - 1)
			comm[length + 1] = 1;
		memcpy(expected, comm, length);
		memcpy(words, comm, sizeof(words));
		zero_behind_name(words);
		CHECK(!memcmp(words, expected, sizeof(expected)));
	}
}
