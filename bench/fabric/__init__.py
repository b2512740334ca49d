"""Transfers between two processes: Lynx against bare libfabric, NIXL and Mooncake, and over links of a known rate."""
