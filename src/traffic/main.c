// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control.h"
#include "options.h"
#include "preflight.h"
#include "receiver.h"
#include "sender.h"
#include "strategy.h"

static const char usage[] =
	"traffic: send bytes over TCP by different methods, and count what happens\n"
	"\n"
	"  traffic send --impl NAME [options]   listen, and send messages to each receiver that connects\n"
	"  traffic recv --port P [options]      connect, and read them\n"
	"  traffic list                         the strategies, as JSON\n"
	"\n"
	"Each prints one JSON object on stdout. `traffic send --help` and `traffic recv --help` tell the\n"
	"options. Try it on one machine, in two terminals:\n"
	"\n"
	"  traffic send --impl one_copy --port 7000 --duration 3\n"
	"  traffic recv --port 7000\n";

/* --check: what would run, without running it. */
static int print_options(const struct options *options)
{
	struct failure failure = { "" };
	int err = preflight__check(options, &failure);

	if (err) {
		fprintf(stderr, "traffic %s: %s\n", role_names[options->role], failure.text);
		return err == -EINVAL ? EXIT_USAGE : EXIT_CANNOT;
	}
	control__emit(options__json(options));
	return 0;
}

static int run_send(int argc, char **argv)
{
	struct options options;

	options__parse(&options, ROLE_SEND, argc, argv);
	return options.check ? print_options(&options) : sender__run(&options);
}

static int run_recv(int argc, char **argv)
{
	struct options options;

	options__parse(&options, ROLE_RECV, argc, argv);
	return options.check ? print_options(&options) : receiver__run(&options);
}

static int run_list(int argc, char **argv)
{
	json_t *list;

	if (argc > 1) {
		fprintf(stderr, "traffic list: '%s': takes no argument\n", argv[1]);
		return EXIT_USAGE;
	}
	list = json_array();
	for (const struct strategy *const *strategy = strategies; *strategy; strategy++) {
		const struct strategy_claim *claim = &(*strategy)->claim;
		json_t *aliases = json_array();

		for (const char *const *alias = (*strategy)->aliases; alias && *alias; alias++)
			json_array_append_new(aliases, json_string(*alias));
		json_array_append_new(list, json_pack("{s:s, s:o, s:{s:i, s:i}, s:b, s:b, s:s}",
			"name", (*strategy)->name, "aliases", aliases, "claim",
			"user_copies", claim->user_copies, "kernel_copies", claim->kernel_copies,
			"async", (*strategy)->reap != NULL, "in_ring", (*strategy)->in_ring, "what", claim->what));
	}
	control__emit(list);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} subcommands[] = {
	{ "send", run_send }, { "recv", run_recv }, { "list", run_list },
};

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		fputs(usage, stdout);
		return 0;
	}
	for (size_t i = 0; i < sizeof(subcommands) / sizeof(*subcommands); i++)
		if (!strcmp(subcommands[i].name, name))
			return subcommands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "traffic: '%s': not a subcommand: use send, recv, list or --help\n", name);
	return EXIT_USAGE;
}
