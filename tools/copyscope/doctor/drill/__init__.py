"""The drill: rewrite a buffer after sending it, and let the receiver count rewritten bytes that arrive."""
