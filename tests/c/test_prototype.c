// SPDX-License-Identifier: GPL-2.0-only
/* Tests of prototype.h with functions of a BTF made here: a row whose arguments do not match is refused with the reason. */
#include <string.h>

#include <bpf/btf.h>

#include "../../src/collector/attach/prototype.h"
#include "check.h"

static struct {
	struct btf *btf;
	int integer, pointer, size;
} made;

static void add_function(const char *name, int first, const char *first_name, int second, const char *second_name)
{
	int proto = btf__add_func_proto(made.btf, made.integer);

	btf__add_func_param(made.btf, first_name, first);
	btf__add_func_param(made.btf, second_name, second);
	btf__add_func(made.btf, name, BTF_FUNC_GLOBAL, proto);
}

static void make(void)
{
	int word;

	made.btf = btf__new_empty();
	made.integer = btf__add_int(made.btf, "int", 4, BTF_INT_SIGNED);
	word = btf__add_int(made.btf, "long unsigned int", 8, 0);
	made.size = btf__add_typedef(made.btf, "size_t", word);
	made.pointer = btf__add_ptr(made.btf, btf__add_const(made.btf, btf__add_struct(made.btf, "sk_buff", 8)));
	add_function("as_it_was", made.pointer, "skb", made.size, "len");
	add_function("swapped", made.size, "len", made.pointer, "skb");
	add_function("renamed", made.pointer, "skb", made.integer, "offset");
	add_function("nameless", made.pointer, NULL, made.size, NULL);
}

/* Return NULL if the prototype matches, else the reason. */
static const char *why_not(const char *function, const char *arguments)
{
	static char reason[128];

	return prototype__fits(made.btf, function, arguments, reason, sizeof(reason)) ? NULL : reason;
}

static bool is(const char *text, const char *expected)
{
	return text && !strcmp(text, expected);
}

TEST("prototype: arguments are counted where BTF knows them")
{
	make();
	CHECK_EQUAL(prototype__arguments(made.btf, "as_it_was"), 2);
	CHECK(prototype__arguments(made.btf, "unknown") < 0);
	CHECK(prototype__arguments(NULL, "as_it_was") < 0);
	btf__free(made.btf);
}

TEST("prototype: what is as it was, or not known, fits")
{
	make();
	CHECK(!why_not("as_it_was", "*skb, len"));
	CHECK(!why_not("as_it_was", "_, len"));
	CHECK(!why_not("as_it_was", "*skb"));
	CHECK(!why_not("swapped", ""));
	CHECK(!why_not("nameless", "*skb, len"));
	CHECK(!why_not("unknown", "*skb, len"));
	btf__free(made.btf);
	made.btf = NULL;
	CHECK(!why_not("as_it_was", "len"));
}

TEST("prototype: what changed is refused with the reason")
{
	make();
	CHECK(is(why_not("swapped", "_, len"), "its prototype changed: argument 2 is the pointer skb, not the integer len"));
	CHECK(is(why_not("swapped", "*skb"), "its prototype changed: argument 1 is the integer len, not the pointer skb"));
	CHECK(is(why_not("renamed", "_, len"),
		 "its prototype changed: argument 2 is the integer offset, not the integer len"));
	CHECK(is(why_not("as_it_was", "_, _, len"), "its prototype changed: it has 2 arguments, and argument 3 (len) is missing"));
	CHECK(is(why_not("nameless", "len"), "its prototype changed: argument 1 is the pointer , not the integer len"));
	btf__free(made.btf);
}
