"""Isolation: work on a stranger's file in a process of its own, with limits on memory and time."""
