// SPDX-License-Identifier: GPL-2.0-only
/*
 * Driver of a simulated PMU for a guest that has none. It is under the GPL, because it uses symbols exported to GPL modules only.
 *
 * The simulator's plugin makes the counts: it adds the events of its cache model to words in the memory of an
 * ivshmem device (src/simulator/simpmu.h). A count that reaches its limit causes an NMI, as on real processors: an MSI-X vector of
 * ivshmem-doorbell, delivered as NMI. Without such a device all counts are derived from the TSC, and there are no interrupts.
 * exclude_user and similar attributes are ignored.
 *
 * hybrid=1: the second CPU has cpu_atom, without L1D misses, and all other CPUs have cpu_core; a CPU that is offline at load time
 * has neither. counters=N: at most N events count at a time on a CPU. always=1: the machine always models its caches. By default
 * it does so only while CPU-wide or sampling events are enabled, which is faster. llc_percent=N: LLC load misses are N % of the
 * modelled ones. alias=1: LLC load misses are L1D load misses.
 */
#include <linux/cpumask.h>
#include <linux/io.h>
#include <linux/irq_work.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <asm/msr.h>
#include <asm/nmi.h>
#include <asm/smp.h>
#include <asm/tsc.h>

#include "simpmu.h"

#define SLOTS 32
#define VENDOR_RED_HAT 0x1af4
#define DEVICE_IVSHMEM 0x1110
#define MSI_ADDRESS 0xfee00000
#define MSI_APIC_ID_SHIFT 12
#define MSI_DATA_NMI 0x400	/* delivery mode NMI of an MSI */

static int always;
module_param(always, int, 0444);
static int hybrid;
module_param(hybrid, int, 0444);
static int counters = SLOTS;
module_param(counters, int, 0444);

static int llc_percent = 100;
module_param(llc_percent, int, 0644);
static int alias;
module_param(alias, int, 0644);

struct simpmu {
	struct pmu pmu;
	struct cpumask cpus;
	const char *name;
	bool atom;
};

static struct simpmu core = { .name = "cpu" }, atom = { .name = "cpu_atom", .atom = true };
static struct pci_dev *device;
static struct simpmu_memory *memory;
static void __iomem *vectors;
static DEFINE_PER_CPU(struct perf_event *[SLOTS], slots);
static DEFINE_PER_CPU(u64, by_clock);
/* perf_event_overflow(), found by its address, because the kernel does not export it. */
static int (*overflow)(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs);

/* While the machine does not model its caches, derive counts from the clock, so that a trial of a counter finds that it counts. */
static u64 count_by_clock(unsigned int column)
{
	static const unsigned char shift[SIMPMU_COLUMNS] = { 0, 1, 6, 7, 8, 9, 10, 11 };

	return __this_cpu_read(by_clock) >> shift[column];
}

static u64 count_of(unsigned int column)
{
	u64 modelled;

	if (!memory || !READ_ONCE(memory->running))
		__this_cpu_write(by_clock, rdtsc_ordered());
	modelled = memory ? READ_ONCE(memory->cpus[smp_processor_id()].count[column]) : 0;
	if (column == SIMPMU_LLC_LOAD_MISSES)
		modelled = modelled * llc_percent / 100;
	return count_by_clock(column) + modelled;
}

static int column_of(const struct perf_event_attr *attr)
{
	/* The upper half holds the type of a hybrid PMU (PERF_PMU_CAP_EXTENDED_HW_TYPE). */
	u64 config = attr->config & U32_MAX;

	if (attr->type == PERF_TYPE_HARDWARE)
		return config == PERF_COUNT_HW_CPU_CYCLES ? SIMPMU_CYCLES :
		       config == PERF_COUNT_HW_INSTRUCTIONS ? SIMPMU_INSTRUCTIONS :
		       config == PERF_COUNT_HW_CACHE_MISSES ? SIMPMU_L2_LOAD_MISSES : -ENOENT;
	if (attr->type != PERF_TYPE_HW_CACHE)
		return config < SIMPMU_COLUMNS ? config : -ENOENT;
	/* config: the cache, the operation << 8, the result << 16 (perf_event_open(2)). */
	switch (config) {
	case 0x10000: return SIMPMU_L1D_LOAD_MISSES;
	case 0x10100: return SIMPMU_L1D_STORE_MISSES;
	case 0x10002: return alias ? SIMPMU_L1D_LOAD_MISSES : SIMPMU_LLC_LOAD_MISSES;
	case 0x10102: return SIMPMU_LLC_STORE_MISSES;
	}
	return -ENOENT;
}

static void update(struct perf_event *event)
{
	u64 now = count_of(event->hw.config), was = local64_xchg(&event->hw.prev_count, now);

	local64_add(now - was, &event->count);
	local64_sub(now - was, &event->hw.period_left);
}

static void renew_period(struct perf_event *event)
{
	s64 left = local64_read(&event->hw.period_left), period = event->hw.sample_period;

	if (left <= -period)
		left = 0;
	if (left <= 0)
		left += period;
	local64_set(&event->hw.period_left, left);
	event->hw.last_period = period;
}

/* Tell the plugin, for each column, the count at which the next sampling period ends. */
static void set_limits(void)
{
	struct simpmu_cpu *cpu = &memory->cpus[smp_processor_id()];
	u64 limits[SIMPMU_COLUMNS] = { 0 }, active = 0;

	for (int i = 0; i < SLOTS; i++) {
		struct perf_event *event = __this_cpu_read(slots[i]);
		u64 limit;

		if (!event || event->hw.state & PERF_HES_STOPPED)
			continue;
		active |= is_sampling_event(event) || !(event->attach_state & PERF_ATTACH_TASK);
		if (!is_sampling_event(event))
			continue;
		limit = local64_read(&event->hw.prev_count) + max_t(s64, local64_read(&event->hw.period_left), 1) -
			count_by_clock(event->hw.config);
		if (!limits[event->hw.config] || limit < limits[event->hw.config])
			limits[event->hw.config] = limit;
	}
	for (int i = 0; i < SIMPMU_COLUMNS; i++)
		WRITE_ONCE(cpu->limit[i], limits[i]);
	WRITE_ONCE(cpu->active, active);
}

static void take_samples(struct pt_regs *regs);
static DEFINE_PER_CPU(struct irq_work, clock_sample);

/* While the machine does not model its caches, make one sample by the clock, so that a trial finds that the PMU interrupts. */
static void sample_by_clock(struct irq_work *work)
{
	struct pt_regs regs = {};

	perf_fetch_caller_regs(&regs);
	take_samples(&regs);
}

static void simpmu_start(struct perf_event *event, int flags)
{
	local64_set(&event->hw.prev_count, count_of(event->hw.config));
	if (is_sampling_event(event))
		renew_period(event);
	event->hw.state = 0;
	if (memory)
		set_limits();
	if (memory && is_sampling_event(event) && !READ_ONCE(memory->running))
		irq_work_queue(this_cpu_ptr(&clock_sample));
	perf_event_update_userpage(event);
}

static void simpmu_stop(struct perf_event *event, int flags)
{
	if (!(event->hw.state & PERF_HES_STOPPED))
		update(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (memory)
		set_limits();
}

static int simpmu_add(struct perf_event *event, int flags)
{
	if (!cpumask_test_cpu(smp_processor_id(), &container_of(event->pmu, struct simpmu, pmu)->cpus))
		return -ENOENT;
	for (int i = 0; i < min(counters, SLOTS); i++) {
		if (__this_cpu_read(slots[i]))
			continue;
		event->hw.idx = i;
		event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
		__this_cpu_write(slots[i], event);
		if (flags & PERF_EF_START)
			simpmu_start(event, PERF_EF_RELOAD);
		return 0;
	}
	return -EAGAIN;
}

static void simpmu_del(struct perf_event *event, int flags)
{
	simpmu_stop(event, PERF_EF_UPDATE);
	__this_cpu_write(slots[event->hw.idx], NULL);
}

static int simpmu_init(struct perf_event *event)
{
	const struct perf_event_attr *attr = &event->attr;
	struct simpmu *simpmu = container_of(event->pmu, struct simpmu, pmu);
	int column;

	if (attr->type != PERF_TYPE_HARDWARE && attr->type != PERF_TYPE_HW_CACHE && attr->type != event->pmu->type)
		return -ENOENT;
	/* Check like x86_pmu_event_init() (arch/x86/events/core.c). */
	if (hybrid && event->cpu != -1 && !cpumask_test_cpu(event->cpu, &simpmu->cpus))
		return -ENOENT;
	column = column_of(attr);
	if (column < 0 || (simpmu->atom && column == SIMPMU_L1D_LOAD_MISSES))
		return -ENOENT;
	if (is_sampling_event(event) && !vectors)
		return -EOPNOTSUPP;
	event->hw.config = column;
	return 0;
}

static void take_samples(struct pt_regs *regs)
{
	for (int i = 0; i < SLOTS; i++) {
		struct perf_event *event = __this_cpu_read(slots[i]);
		struct perf_sample_data data;

		if (!event || !is_sampling_event(event) || event->hw.state & PERF_HES_STOPPED)
			continue;
		update(event);
		if (local64_read(&event->hw.period_left) > 0)
			continue;
		renew_period(event);
		perf_sample_data_init(&data, 0, event->hw.last_period);
		if (overflow(event, &data, regs))
			simpmu_stop(event, 0);
	}
	set_limits();
}

static int simpmu_nmi(unsigned int type, struct pt_regs *regs)
{
	struct simpmu_cpu *cpu = &memory->cpus[smp_processor_id()];

	if (!READ_ONCE(cpu->rung))
		return NMI_DONE;
	/* Freeze the counters meanwhile, as on Intel and AMD processors. */
	WRITE_ONCE(cpu->frozen, 1);
	WRITE_ONCE(cpu->rung, 0);
	take_samples(regs);
	WRITE_ONCE(cpu->frozen, 0);
	return NMI_HANDLED;
}

static ssize_t cpus_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct pmu *pmu = dev_get_drvdata(dev);

	return cpumap_print_to_pagebuf(true, buf, &container_of(pmu, struct simpmu, pmu)->cpus);
}
static DEVICE_ATTR_RO(cpus);
static struct attribute *simpmu_attrs[] = { &dev_attr_cpus.attr, NULL };
static const struct attribute_group simpmu_group = { .attrs = simpmu_attrs };
static const struct attribute_group *simpmu_groups[] = { &simpmu_group, NULL };

static int add_pmu(struct simpmu *simpmu, int type)
{
	simpmu->pmu = (struct pmu){
		.module = THIS_MODULE,
		.task_ctx_nr = perf_hw_context,
		.capabilities = (vectors ? 0 : PERF_PMU_CAP_NO_INTERRUPT) | (hybrid ? PERF_PMU_CAP_EXTENDED_HW_TYPE : 0),
		.event_init = simpmu_init,
		.add = simpmu_add,
		.del = simpmu_del,
		.start = simpmu_start,
		.stop = simpmu_stop,
		.read = update,
		.attr_groups = hybrid ? simpmu_groups : NULL,
	};
	return perf_pmu_register(&simpmu->pmu, simpmu->name, type);
}

/* Make vector i an NMI of CPU i. Write the MSI-X table directly, because the kernel's MSI layer does not support NMIs. */
static int open_vectors(void)
{
	u32 table;
	u16 flags;
	u8 *base;

	if (!device->msix_cap)
		return 0;
	pci_read_config_dword(device, device->msix_cap + PCI_MSIX_TABLE, &table);
	base = pci_iomap(device, table & PCI_MSIX_TABLE_BIR, 0);
	if (!base)
		return -ENOMEM;
	vectors = base + (table & PCI_MSIX_TABLE_OFFSET);
	pci_read_config_word(device, device->msix_cap + PCI_MSIX_FLAGS, &flags);
	for (unsigned int i = 0; i <= (flags & PCI_MSIX_FLAGS_QSIZE) && i < nr_cpu_ids; i++) {
		void __iomem *entry = vectors + i * PCI_MSIX_ENTRY_SIZE;

		writel(MSI_ADDRESS | per_cpu(x86_cpu_to_apicid, i) << MSI_APIC_ID_SHIFT, entry + PCI_MSIX_ENTRY_LOWER_ADDR);
		writel(0, entry + PCI_MSIX_ENTRY_UPPER_ADDR);
		writel(MSI_DATA_NMI, entry + PCI_MSIX_ENTRY_DATA);
		writel(0, entry + PCI_MSIX_ENTRY_VECTOR_CTRL);
	}
	pci_write_config_word(device, device->msix_cap + PCI_MSIX_FLAGS,
			      (flags & ~PCI_MSIX_FLAGS_MASKALL) | PCI_MSIX_FLAGS_ENABLE);
	return register_nmi_handler(NMI_LOCAL, simpmu_nmi, 0, "simpmu");
}

static int find_overflow(void)
{
	struct kprobe probe = { .symbol_name = "perf_event_overflow" };
	int err = register_kprobe(&probe);

	if (err)
		return err;
	overflow = (void *)probe.addr;
	unregister_kprobe(&probe);
	return 0;
}

static int open_device(void)
{
	int err;

	device = pci_get_device(VENDOR_RED_HAT, DEVICE_IVSHMEM, NULL);
	if (!device)
		return 0;
	err = pci_enable_device(device);
	if (err)
		return err;
	pci_set_master(device);
	memory = memremap(pci_resource_start(device, 2), SIMPMU_BYTES, MEMREMAP_WB);
	if (!memory)
		return -ENOMEM;
	if (memory->magic != SIMPMU_MAGIC)
		return -ENODEV;
	memory->always = always;
	err = find_overflow();
	return err ? err : open_vectors();
}

static int __init simpmu_module(void)
{
	int cpu, err = open_device();

	if (err)
		return err;
	for_each_possible_cpu(cpu)
		*per_cpu_ptr(&clock_sample, cpu) = IRQ_WORK_INIT_HARD(sample_by_clock);
	cpumask_copy(&core.cpus, hybrid ? cpu_online_mask : cpu_possible_mask);
	if (hybrid) {
		core.name = "cpu_core";
		if (cpumask_test_and_clear_cpu(1, &core.cpus))
			cpumask_set_cpu(1, &atom.cpus);
	}
	err = add_pmu(&core, PERF_TYPE_RAW);
	if (!err && hybrid)
		err = add_pmu(&atom, -1);
	pr_info("simpmu: %s: %s, %s: %d\n", core.name, memory ? "modelled" : "TSC", vectors ? "NMI" : "no interrupt", err);
	return err;
}

/* The module has no exit function: it stays loaded until the machine is turned off. */
module_init(simpmu_module);
MODULE_DESCRIPTION("A PMU whose counts are known");
MODULE_LICENSE("GPL");
