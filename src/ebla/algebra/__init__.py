"""A view's query as a tree: how values travel through it, and which rows a change reaches."""
