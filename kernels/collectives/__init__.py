"""Operators over several chips, inside jax.shard_map."""
