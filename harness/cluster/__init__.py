"""Campaigns on a cluster: its options, the batch job, and what a job knows of its nodes."""
