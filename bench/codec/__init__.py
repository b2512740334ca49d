"""The codec's speed against memcpy, and beside it what a user would run instead. One thread."""
