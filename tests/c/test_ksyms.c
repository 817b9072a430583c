// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/collector/kernel/ksyms.h"
#include "check.h"

TEST("ksyms: behind the end of a function is none")
{
	struct ksyms *ksyms = NULL;
	uint64_t begin = 0, end = 0;
	int err = ksyms__load(&ksyms);

	/* Without root the kernel hides the addresses. */
	if (err == -EPERM)
		return;
	CHECK_EQUAL(err, 0);
	CHECK(ksyms__range(ksyms, "tcp_sendmsg_locked", &begin, &end));
	CHECK(end - begin > 64);
	CHECK(!strcmp(ksyms__name(ksyms, ksyms__find(ksyms, begin + 64)), "tcp_sendmsg_locked"));
	ksyms__bound(ksyms, begin, 64);
	CHECK(!strcmp(ksyms__name(ksyms, ksyms__find(ksyms, begin + 63)), "tcp_sendmsg_locked"));
	CHECK_EQUAL(ksyms__find(ksyms, begin + 64), KSYM_UNKNOWN);
	/* The next function starts at the end of this one, and no function starts in the middle of another. */
	CHECK(ksyms__find(ksyms, end) != KSYM_UNKNOWN);
	ksyms__bound(ksyms, begin + 8, 1);
	CHECK(!strcmp(ksyms__name(ksyms, ksyms__find(ksyms, begin + 63)), "tcp_sendmsg_locked"));
	ksyms__free(ksyms);
}

/* The result must not depend on the order of the lines. */
TEST("ksyms: of the names of one address always the same is taken")
{
	static const char *const lines[] = {
		"ffffffff81000100 t common_return\n", "ffffffff81000100 T __irqentry_text_end\n",
		"ffffffff81000100 T restore_and_return\n", "ffffffff81000100 T quick_return\n",
		"ffffffff81000200 t b_local\n", "ffffffff81000200 W z_weak\n", "ffffffff81000200 t a_local\n",
		"ffffffff81000300 t only\n",
	};
	const int count = sizeof(lines) / sizeof(*lines);

	for (int backwards = 0; backwards < 2; backwards++) {
		char path[] = "/tmp/ksyms.XXXXXX";
		int fd = mkstemp(path);
		FILE *file = fdopen(fd, "w");
		struct ksyms *ksyms = NULL;

		for (int i = 0; i < count; i++)
			fputs(lines[backwards ? count - 1 - i : i], file);
		fclose(file);
		CHECK_EQUAL(ksyms__read(&ksyms, path), 0);
		unlink(path);
		CHECK(!strcmp(ksyms__name(ksyms, ksyms__find(ksyms, 0xffffffff81000110)), "quick_return"));
		CHECK(!strcmp(ksyms__name(ksyms, ksyms__find(ksyms, 0xffffffff81000200)), "z_weak"));
		CHECK(!strcmp(ksyms__name(ksyms, ksyms__find(ksyms, 0xffffffff81000300)), "only"));
		ksyms__free(ksyms);
	}
}
