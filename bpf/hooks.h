/* SPDX-License-Identifier: GPL-2.0 */
/*
 * hooks.h - one row per kernel hook, and the only place that names them.
 *
 * HOOK(id, instrument, tracepoint, need)
 *
 * id          the BPF program is on_<id>; the record calls the hook by this name
 * instrument  bytes | calls | sampler | functions: switched together, segment by segment
 *             watch | volume | copies | packets | shape: of a program that we did not write; watch and volume stay
 *             attached all the time
 * tracepoint  attached as tp_btf; present when BTF has the typedef btf_trace_<tracepoint>
 * need        REQUIRED  without it the instrument does not run
 *             OPTIONAL  without it a column is missing, and says so
 *             FALLBACK  used only where the row before it is absent, or refused when it is loaded or attached
 *
 * Which kernel has which tracepoint was read from BTF, never from a version number:
 * sock_send_length and sock_recv_length came with 6.3 (commit 6e6eda44b939), tcp_sendmsg_locked is in 6.16 and not in 6.12,
 * the others are older than 5.10.
 */
#ifndef COPYSCOPE_HOOKS_H
#define COPYSCOPE_HOOKS_H

#define HOOKS(HOOK) \
	HOOK(send_bytes, bytes, sock_send_length, OPTIONAL) \
	HOOK(send_bytes_at_exit, bytes, sys_exit, FALLBACK) \
	HOOK(receive_bytes, bytes, sock_recv_length, OPTIONAL) \
	HOOK(receive_bytes_at_exit, bytes, sys_exit, FALLBACK) \
	HOOK(copy_out_bytes, bytes, skb_copy_datagram_iovec, REQUIRED) \
	HOOK(uring_bytes, bytes, io_uring_complete, OPTIONAL) \
	HOOK(syscall_enter, calls, sys_enter, REQUIRED) \
	HOOK(syscall_exit, calls, sys_exit, REQUIRED) \
	HOOK(task_switch, calls, sched_switch, REQUIRED) \
	HOOK(softirq_enter, calls, softirq_entry, REQUIRED) \
	HOOK(softirq_leave, calls, softirq_exit, REQUIRED) \
	HOOK(packet_owner, sampler, netif_receive_skb, OPTIONAL) \
	HOOK(process_fork, watch, sched_process_fork, REQUIRED) \
	HOOK(thread_exit, watch, sched_process_exit, REQUIRED) \
	HOOK(process_exit, watch, sched_process_exit, REQUIRED) \
	HOOK(process_exec, watch, sched_process_exec, OPTIONAL) \
	HOOK(socket_closed, watch, inet_sock_set_state, OPTIONAL) \
	HOOK(socket_destroyed, watch, tcp_destroy_sock, OPTIONAL) \
	HOOK(volume_received, volume, sock_recv_length, OPTIONAL) \
	HOOK(volume_sent, volume, sock_send_length, OPTIONAL) \
	HOOK(volume_sent_at_exit, volume, sys_exit, FALLBACK) \
	HOOK(completion, watch, inet_sk_error_report, OPTIONAL) \
	HOOK(uring_complete, watch, io_uring_complete, OPTIONAL) \
	HOOK(splice_seen, copies, tcp_rcv_space_adjust, OPTIONAL) \
	HOOK(volume_spliced, copies, sys_exit, REQUIRED) \
	HOOK(volume_copied_out, copies, skb_copy_datagram_iovec, REQUIRED) \
	HOOK(packet, packets, net_dev_start_xmit, OPTIONAL) \
	HOOK(shape, shape, sys_exit, OPTIONAL) \
	HOOK(file_read, shape, sys_exit, OPTIONAL) \
	HOOK(round_end, shape, sock_send_length, OPTIONAL) \
	HOOK(round, shape, tcp_sendmsg_locked, OPTIONAL) \
	HOOK(shadow_switch, functions, sched_switch, REQUIRED) \
	HOOK(shadow_softirq_enter, functions, softirq_entry, REQUIRED) \
	HOOK(shadow_softirq_leave, functions, softirq_exit, REQUIRED)

/*
 * FUNCTION(id, symbols, category, kind, bytes, need, moves, arguments) - one row per kernel function, hooked at its entry and its
 * exit: with fentry and fexit, and where these are refused with kprobe and kretprobe (attach.c)
 *
 * symbols   candidates in order, separated by |: the first that this kernel has is used
 * category  what its own time is charged to; of what only delimits copies nothing is
 * kind      SPAN | ROOT | REFERENCE | BRACKET | MARK | PART | CALL | OWN_ROOT (abi.h); a ROOT has its socket first
 * bytes     NONE | RETURNED (positive return value) | SKB_DATA_LEN (of the skb in the first argument) |
 *           CHECKED (second argument, where the third says that it goes to the kernel) |
 *           FOURTH_ARGUMENT, FIFTH_ARGUMENT (if it returned 0) |
 *           TAKEN (fourth argument if it returned 0, else the return value, if that is positive) |
 *           INSERTED_PAGES (whole pages, as many as the fourth argument points at, if it returned 0) |
 *           SECOND_ARGUMENT (if it returned as much: of less, TCP takes nothing)
 * need      REQUIRED | OPTIONAL, as above: a send and a receive begin somewhere, and without these two no copy is looked for
 * moves     ALWAYS, or which bytes alone pass it: ZEROCOPY (MSG_ZEROCOPY and io_uring's) | PAGES (sendfile, splice) | TLS (kTLS) |
 *           PAGES_OR_TLS | MAP (TCP_ZEROCOPY_RECEIVE). Of our own traffic that has none the function is left alone
 * arguments those that the programs read, as the prototype has them: *NAME a pointer, NAME an integer, _ one that is not read.
 *           Where BTF has others the row is missing, and says so (prototype.c): they would be read wrongly
 *
 * Only what copies, or pins what it would copy, and what delimits it: each function costs every call of it, and a grace period when
 * it goes. The stages between them are the sampler's.
 *
 * The copy into the kernel itself (_copy_from_iter) has no ftrace site on any kernel: lib/ is built without. The first
 * rows of the category COPY_IN are ways to see it all the same; one of them is used (function_set.c).
 * CALL: by kprobe, at the instructions that call it in COPY_CALLERS, found in the running kernel's text, and at those after
 * them. The older kernel copies in a function that nothing can be hooked in, and that one is called.
 * BRACKET: tcp_wmem_schedule() returns the number of bytes that are copied (or pinned) next (6.1 and newer), and whichever hooked
 * function comes next is its end: tcp_sendmsg_locked() then looks for room for the next piece (page_frag, memory_free), pushes what
 * it has, or is done. On older kernels the copy begins when __check_object_size() has seen its destination (which every copy from
 * user space has checked, so it is the dearer hook).
 *
 * silent: whatever copies a packet's data inside the kernel ends in skb_copy_bits(), which knows how much.
 * send_page, send_pages: splice and sendfile on kernels without skb_splice_from_iter().
 * copy_in_record, pin_record: kTLS. Its own functions are in a module and call none of the roots, so these two need none where our
 * own traffic runs. sk_msg_memcopy_from_iter() returns what it copied since 6.13 (commit fdf478d236dc; older stable series have it,
 * too), and 0 before.
 * map: with what it takes out of the address space, and the flush of the TLBs.
 */
#define FUNCTIONS(FUNCTION) \
	FUNCTION(send, "tcp_sendmsg", SEND, ROOT, NONE, REQUIRED, ALWAYS, "*sk") \
	FUNCTION(receive, "tcp_recvmsg", RECEIVE, ROOT, NONE, REQUIRED, ALWAYS, "*sk") \
	FUNCTION(copy_in_call, "_copy_from_iter|_copy_from_iter_nocache", COPY_IN, CALL, SECOND_ARGUMENT, OPTIONAL, ALWAYS, "_, bytes") \
	FUNCTION(copy_in_call_around, "skb_do_copy_data_nocache", COPY_IN, CALL, FIFTH_ARGUMENT, OPTIONAL, ALWAYS, "_, _, _, _, copy") \
	FUNCTION(copy_in, "tcp_wmem_schedule", COPY_IN, BRACKET, RETURNED, OPTIONAL, ALWAYS, "") \
	FUNCTION(copy_in_check, "__check_object_size", COPY_IN, BRACKET, CHECKED, OPTIONAL, ALWAYS, "_, n, to_user") \
	FUNCTION(copy_in_record, "sk_msg_memcopy_from_iter", COPY_IN, OWN_ROOT, TAKEN, OPTIONAL, TLS, "_, _, _, bytes") \
	FUNCTION(pin_record, "sk_msg_zerocopy_from_iter", PIN, OWN_ROOT, FOURTH_ARGUMENT, OPTIONAL, TLS, "_, _, _, bytes") \
	FUNCTION(pin, "skb_zerocopy_iter_stream", PIN, REFERENCE, RETURNED, OPTIONAL, ZEROCOPY, "") \
	FUNCTION(splice, "skb_splice_from_iter", PIN, REFERENCE, RETURNED, OPTIONAL, PAGES_OR_TLS, "") \
	FUNCTION(send_page, "tcp_sendpage", SEND, ROOT, NONE, OPTIONAL, PAGES, "*sk") \
	FUNCTION(send_pages, "do_tcp_sendpages", PIN, SPAN, RETURNED, OPTIONAL, PAGES_OR_TLS, "") \
	FUNCTION(deferred, "skb_copy_ubufs", DEFERRED, SPAN, SKB_DATA_LEN, OPTIONAL, ZEROCOPY, "*skb") \
	FUNCTION(copy_bits, "skb_copy_bits", SILENT, PART, FOURTH_ARGUMENT, OPTIONAL, ALWAYS, "_, _, _, len") \
	FUNCTION(copy_out, "simple_copy_to_iter", COPY_OUT, OWN_ROOT, RETURNED, OPTIONAL, ALWAYS, "") \
	FUNCTION(map, "tcp_zerocopy_receive", MAPPED, ROOT, NONE, OPTIONAL, MAP, "*sk") \
	FUNCTION(map_pages, "vm_insert_pages", MAPPED, SPAN, INSERTED_PAGES, OPTIONAL, MAP, "_, _, _, *num") \
	FUNCTION(page_frag, "sk_page_frag_refill", NONE, MARK, NONE, OPTIONAL, ALWAYS, "") \
	FUNCTION(memory_free, "tcp_stream_memory_free", NONE, MARK, NONE, OPTIONAL, ALWAYS, "") \
	FUNCTION(push, "tcp_push", NONE, MARK, NONE, OPTIONAL, ALWAYS, "") \
	FUNCTION(push_one, "tcp_push_one", NONE, MARK, NONE, OPTIONAL, ALWAYS, "") \
	FUNCTION(push_pending, "__tcp_push_pending_frames", NONE, MARK, NONE, OPTIONAL, ALWAYS, "")

/* Where TCP calls what copies; the last two are parts of it where the compiler made functions of them. */
#define COPY_CALLERS "tcp_sendmsg_locked|tcp_sendmsg_locked.cold|skb_copy_to_page_nocache|skb_do_copy_data_nocache"

/* How the bytes move of whoever is measured, one bit each. */
enum moves {
	MOVES_ALWAYS = 1,
	MOVES_ZEROCOPY = 2,
	MOVES_PAGES = 4,
	MOVES_TLS = 8,
	MOVES_PAGES_OR_TLS = MOVES_PAGES | MOVES_TLS,
	MOVES_MAP = 16,
	MOVES_ALL = 31,
};

/* Which row a frame of a call stack belongs to; the last two have no function. */
enum function_row {
#define FUNCTION(id, symbols, category, kind, bytes, need, moves, arguments) ROW_##id,
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	ROW_CNT,
	ROW_BRACKET = ROW_CNT,
	ROW_SOFTIRQ,
};

/*
 * ZEROCOPY(id, symbols, ends, arguments) - the life of a zero-copy send, from its ubuf_info to the notification; symbols and
 * arguments as above. Part of the instrument functions; all of them or none.
 *
 * ends  ENTER | LEAVE | BOTH: a kretprobe does not see the arguments, so what is needed at the exit is kept at the entry
 *
 * The completion is hooked at both ends: at its entry a count of 1 says that this is the last reference; two CPUs that
 * drop the last two at once both see 2 there, and at the exit 0. 5.10 has a
 * function for the last reference only: there zerocopy_last takes the place of zerocopy_drop and zerocopy_dropped.
 */
#define ZEROCOPIES(ZEROCOPY) \
	ZEROCOPY(zerocopy_use, "msg_zerocopy_realloc|sock_zerocopy_realloc", BOTH, "*sk, _, *uarg") \
	ZEROCOPY(zerocopy_return, "tcp_sendmsg", LEAVE, "") \
	ZEROCOPY(zerocopy_copy, "skb_copy_ubufs", ENTER, "*skb") \
	ZEROCOPY(zerocopy_drop, "msg_zerocopy_complete|msg_zerocopy_callback", ENTER, "_, *uarg, success") \
	ZEROCOPY(zerocopy_dropped, "msg_zerocopy_complete|msg_zerocopy_callback", LEAVE, "_, *uarg") \
	ZEROCOPY(zerocopy_last, "sock_zerocopy_callback", ENTER, "*uarg, success")

enum life {
#define ZEROCOPY(id, symbols, ends, arguments) LIFE_##id,
	ZEROCOPIES(ZEROCOPY)
#undef ZEROCOPY
	LIFE_CNT,
};

#endif
