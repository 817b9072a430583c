"""The copies of a run in a simulated machine: a stock kernel in QEMU, with a model of the caches."""
