"""A second opinion: the same quantities from our instruments and from tools that we did not write."""
