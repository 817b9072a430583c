"""Running a tool of others that needs tracefs where nobody has mounted it."""

# In a mount namespace of its own: it is not ours to mount. Old tools look for it in debugfs.
IN_TRACEFS = (
    *("unshare", "--mount", "sh", "-c"),
    "exec 3>&2 2>/dev/null; mount -t tracefs tracefs /sys/kernel/tracing;"
    'mount -t debugfs debugfs /sys/kernel/debug; exec 2>&3 3>&-; exec "$@"',
    "sh",
)
