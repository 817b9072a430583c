"""A buffer that is rewritten after the call that sent it has returned: what of it arrives changed."""
