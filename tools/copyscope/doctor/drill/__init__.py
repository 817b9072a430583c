# SPDX-License-Identifier: GPL-2.0-only
"""The drill: rewrite a buffer after sending it, and let the receiver count rewritten bytes that arrive."""
