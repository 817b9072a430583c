// SPDX-License-Identifier: GPL-2.0
/*
 * Debian's libelf.a (0.192, trixie) refers to four functions of elfutils' own libeu.a, which no package holds. They
 * keep a binary tree (lib/eu-search.h of elfutils): the same by tsearch(3), for programs with one thread at libelf.
 */
#define _GNU_SOURCE
#include <search.h>
#include <stddef.h>

/* As large as theirs or smaller: a root, then a lock that nobody needs here. */
struct search_tree {
	void *root;
};

typedef int (*compare_t)(const void *a, const void *b);

void eu_search_tree_init(struct search_tree *tree);
void eu_search_tree_fini(struct search_tree *tree, void (*release)(void *node));
void *eu_tsearch(const void *key, struct search_tree *tree, compare_t compare);
void *eu_tdelete(const void *key, struct search_tree *tree, compare_t compare);

void eu_search_tree_init(struct search_tree *tree)
{
	tree->root = NULL;
}

void eu_search_tree_fini(struct search_tree *tree, void (*release)(void *node))
{
	tdestroy(tree->root, release);
}

void *eu_tsearch(const void *key, struct search_tree *tree, compare_t compare)
{
	return tsearch(key, &tree->root, compare);
}

void *eu_tdelete(const void *key, struct search_tree *tree, compare_t compare)
{
	return tdelete(key, &tree->root, compare);
}
