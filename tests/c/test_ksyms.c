#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "../../src/collector/ksyms.h"
#include "check.h"

static void behind_the_end_of_a_function_is_none(void)
{
	struct ksyms *ksyms = NULL;
	uint64_t begin = 0, end = 0;
	int err = ksyms__load(&ksyms);

	/* Without root the kernel shows no addresses. */
	if (err == -EPERM)
		return;
	CHECK_EQUAL(err, 0);
	CHECK(ksyms__range(ksyms, "tcp_sendmsg_locked", &begin, &end));
	CHECK(end - begin > 64);
	CHECK(!strcmp(ksyms__name(ksyms, ksyms__find(ksyms, begin + 64)), "tcp_sendmsg_locked"));
	ksyms__bound(ksyms, begin, 64);
	CHECK(!strcmp(ksyms__name(ksyms, ksyms__find(ksyms, begin + 63)), "tcp_sendmsg_locked"));
	CHECK_EQUAL(ksyms__find(ksyms, begin + 64), KSYM_UNKNOWN);
	/* The next one is where it was; and there is no function in the middle of another. */
	CHECK(ksyms__find(ksyms, end) != KSYM_UNKNOWN);
	ksyms__bound(ksyms, begin + 8, 1);
	CHECK(!strcmp(ksyms__name(ksyms, ksyms__find(ksyms, begin + 63)), "tcp_sendmsg_locked"));
	ksyms__free(ksyms);
}

const struct test ksyms_tests[] = {
	{ "ksyms: behind the end of a function is none", behind_the_end_of_a_function_is_none },
	{ NULL, NULL },
};
