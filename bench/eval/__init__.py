"""Requests measured from end to end: when tokens come, whether they are the right ones, and what they answer."""
